"""A producer of the loop: `python -m tests.kills.producer BASE FIRST LAST`."""

import random
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from dueline import Duplicate, EnqueueUnknown, StoreUnavailable, Unique
from dueline.api.task import Using
from dueline.core.clock import to_datetime
from dueline.core.codec import decode, encode
from dueline.core.job import Job as Row
from tests.kills.jumps import true_us
from tests.kills.used import use
from tests.kills.workload import (
    AGAIN_S,
    FOLDER,
    KEYS,
    PRIORITIES,
    TENANTS,
    app,
    diary,
    event_of,
    record,
    wait_for_store,
    work,
)

GATE = FOLDER / "gate"
"""Holds how many numbers each producer may use, so that they live as long as the loop."""

BULK_MAX = 20
DUE_S_MAX = 1.5
SINGLE, LATER, UNIQUE = 0.5, 0.3, 0.4
"""Shares of calls: enqueued one by one, due a little later; of the single ones, with a key."""

_GATE_S = 0.005


def produce(base: int, first: int, last: int) -> None:
    """Enqueue the numbers from first to last, each in one call.

    What the life before this one left unknown is sent again first.

    Args: base: the first number of the producer's first life.
    """
    kept = FOLDER / f"{base}.unknown"
    if kept.exists():
        _send_again(decode(kept.read_bytes(), list[Row]), kept)
    number = first
    while number <= last:
        while (open_to := base + int(GATE.read_text()) - 1) < number:
            time.sleep(_GATE_S)
        count = 1 if random.random() < SINGLE else random.randint(2, BULK_MAX)
        numbers = range(number, min(number + count, last + 1, open_to + 1))
        number = numbers.stop
        use(FOLDER, base, numbers[-1])
        _enqueue(numbers, kept)


def _enqueue(numbers: Sequence[int], kept: Path) -> None:
    due_us = true_us()
    if random.random() < LATER:
        due_us += int(random.random() * DUE_S_MAX * 1e6)
    try:
        _put(numbers, due_us)
    except EnqueueUnknown as error:
        _send_again(error.jobs, kept)


def _put(numbers: Sequence[int], due_us: int) -> None:
    """Call until the store can be had: it says that before nothing was written."""
    while True:
        task = work.using(
            due=to_datetime(due_us),
            priority=random.choice(PRIORITIES),
            tenant=random.choice(TENANTS),
        )
        try:
            if len(numbers) == 1:
                _put_one(task, numbers[0])
            else:
                task.enqueue_many([(number,) for number in numbers])
        except EnqueueUnknown:
            raise
        except StoreUnavailable:
            time.sleep(AGAIN_S)
        else:
            return


def _put_one(task: Using[[int], int], number: int) -> None:
    """Enqueue a call, some with a key: write down that it was refused, if so."""
    if random.random() < UNIQUE:
        mode: Literal["reject", "replace"] = random.choice(("reject", "replace"))
        task = task.using(unique=Unique(f"key {random.randrange(KEYS)}", mode=mode))
    try:
        task.enqueue(number)
    except Duplicate:
        told = event_of(type="no", f="enqueue", id=f"refused {number}", note=str(number))
        diary.write(told)


def _send_again(rows: Sequence[Row], kept: Path) -> None:
    """Send the very same rows until they are stored; keep them in a file until then."""
    new = kept.with_suffix(".new")
    new.write_bytes(encode(list(rows)))
    new.replace(kept)
    while True:
        try:
            app.queues.enqueue_again(rows)
        except StoreUnavailable:
            time.sleep(AGAIN_S)
        else:
            break
    kept.unlink()


if __name__ == "__main__":
    record()
    wait_for_store()
    produce(*map(int, sys.argv[1:]))
