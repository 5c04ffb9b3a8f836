"""A producer of the loop: `python -m tests.kills.producer BASE FIRST LAST`."""

import random
import sys
import time
from collections.abc import Sequence

from dueline import Job
from dueline.clock import to_datetime
from tests.kills.workload import FOLDER, diary, event_of, now_us, work

GATE = FOLDER / "gate"
"""Holds how many numbers each producer may use, so that they live as long as the loop."""

BULK_MAX = 20
DUE_S_MAX = 1.5
SINGLE, LATER = 0.5, 0.3
"""Shares of calls: enqueued one by one, and due a little later."""

_GATE_S = 0.005


def produce(base: int, first: int, last: int) -> None:
    """Enqueue the numbers from first to last, each attempted once; write down each step.

    Args: base: the first number of the producer's first life.
    """
    number = first
    while number <= last:
        while (open_to := base + int(GATE.read_text()) - 1) < number:
            time.sleep(_GATE_S)
        count = 1 if random.random() < SINGLE else random.randint(2, BULK_MAX)
        numbers = range(number, min(number + count, last + 1, open_to + 1))
        number = numbers.stop
        _enqueue(numbers)


def _enqueue(numbers: Sequence[int]) -> None:
    due_us = now_us()
    if random.random() < LATER:
        due_us += int(random.random() * DUE_S_MAX * 1e6)
    task = work.using(due=to_datetime(due_us), priority=random.choice((0, 0, 5, -5)))
    diary.write(*(event_of("attempt", number=number) for number in numbers))
    jobs: Sequence[Job[int]]
    if len(numbers) == 1:
        jobs = [task.enqueue(numbers[0], due_us)]
    else:
        jobs = task.enqueue_many([(number, due_us) for number in numbers])
    for number, job in zip(numbers, jobs, strict=True):
        diary.write(event_of("ack", number=number, job=job.id))


if __name__ == "__main__":
    produce(*map(int, sys.argv[1:]))
