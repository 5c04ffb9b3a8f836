"""The application of two versions on one store: `mixed.py ROLE PROCESSES`.

It runs under either version, so it uses the public API alone and imports nothing of the tests.
Each process appends what it did to a file of its own, one line with one write.
"""

import os
import random
import sys
import time
from pathlib import Path

from dueline import Context, Dueline, EnqueueUnknown, Retry, StoreUnavailable, group, pipeline

FOLDER_VARIABLE = "DUELINE_MIXED_FOLDER"
STORE_VARIABLE = "DUELINE_MIXED_STORE"
QUEUE = "mixed"
SHARDS = 2
LEASE_S = 3.0
"""Long enough that a busy machine does not let the claims of a live worker expire."""

CAPACITY = 2
"""Permits of the semaphore."""

FAILS_ONCE_EVERY, FAILS_ALWAYS_EVERY = 7, 101
AHEAD_MAX = 100
"""Maximum number of jobs that a producer adds ahead of those that workers have finished."""

FOLDER = Path(os.environ[FOLDER_VARIABLE])
ADDED, FINISHED = FOLDER / "added", FOLDER / "finished"
"""One byte for each job that producers added, and for each that ended, as a measure of length."""

LINES = os.open(FOLDER / f"{os.getpid()}.lines", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
ADDS, FINISHES = (
    os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600) for path in (ADDED, FINISHED)
)

app = Dueline(os.environ[STORE_VARIABLE])
app.queue(QUEUE, lease=LEASE_S, shards=SHARDS)
app.semaphore("pair", capacity=CAPACITY)


def note(*words: object) -> None:
    """Append a line: monotonic time in microseconds, then the words."""
    line = " ".join(map(str, (time.monotonic_ns() // 1000, *words)))
    os.write(LINES, line.encode() + b"\n")


@app.task(name="plain", queue=QUEUE, retry=Retry(attempts=2, base=0.05, cap=0.1))
def plain(context: Context, number: int) -> int:
    """Return the number twice over; fail for some numbers."""
    if number % FAILS_ONCE_EVERY == 0 and context.attempt == 1:
        raise RuntimeError(f"number {number} fails once")
    os.write(FINISHES, b".")
    if number % FAILS_ALWAYS_EVERY == 0:
        raise RuntimeError(f"number {number} fails")
    return 2 * number


@app.task(name="limited", queue=QUEUE, limits=["pair"])
def limited(number: int) -> int:
    """Hold one of the permits for some milliseconds."""
    note("in", number)
    time.sleep(random.random() * 0.005)
    note("out", number)
    os.write(FINISHES, b".")
    return number


@app.task(name="add", queue=QUEUE)
def add(number: int, more: int) -> int:
    """Return the sum of two numbers."""
    return number + more


@app.task(name="total", queue=QUEUE)
def total(numbers: list[int]) -> int:
    """Return the sum of the numbers."""
    os.write(FINISHES, b".")
    return sum(numbers)


@app.task(name="tick", queue=QUEUE)
def tick() -> None:
    """Do nothing, once a second."""


app.schedule("tick", tick, every=1.0)


def produce() -> None:
    """Enqueue jobs and start workflows until killed, some ahead of what was finished."""
    chance = random.Random()
    while True:
        if ADDED.stat().st_size - FINISHED.stat().st_size >= AHEAD_MAX:
            time.sleep(0.02)
            continue
        try:
            os.write(ADDS, b"." * produce_some(chance))
        except EnqueueUnknown:  # some of it may be there: the judge knows nothing of it
            continue
        except StoreUnavailable:
            time.sleep(0.2)


def produce_some(chance: random.Random) -> int:
    """Enqueue a few jobs of one kind; return how many lines of `finished` they will write."""
    kind, number = chance.random(), chance.randrange(1_000_000)
    if kind < 0.4:
        note("plain", plain.enqueue(number).id)
        return 1
    if kind < 0.6:
        jobs = plain.enqueue_many([(number + more,) for more in range(8)])
        note("plain", *(job.id for job in jobs))
        return 8
    if kind < 0.9:
        note("limited", limited.using(priority=chance.choice((0, 5))).enqueue(number).id)
        return 1
    width = chance.randint(1, 4)
    each = (pipeline(add.step(part, 1), add.step(10)) for part in range(width))
    flow = app.start(pipeline(group(each), total.step()), name=str(width))
    note("flow", flow.id)
    return 1


def main(role: str, processes: int) -> None:
    """Play a role: `producer` or `worker`."""
    note("started", role)
    if role == "producer":
        produce()
    else:
        app.run_worker([QUEUE], concurrency=4, processes=processes, drain=5)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
