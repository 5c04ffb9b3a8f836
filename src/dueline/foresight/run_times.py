"""Run times of all workers together: what a job costs."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from dueline.coordination.run_times import Histogram, WorkerTimes, add, middle_of, worker_times
from dueline.core.store import Records

KNOWN_MIN: Final = 20
"""Minimum number of run times of a task, or of a queue, from which its mean is known."""


@dataclass(slots=True)
class RunTimes:
    """Run times by queue and task, of all workers.

    Attributes:
      overhead_us: Time that a slot is taken by a job beyond its run time, while a worker is busy.
          It is negative where one slot runs batches.
    """

    tasks: dict[tuple[str, str], Histogram] = field(default_factory=dict)
    queues: dict[str, Histogram] = field(default_factory=dict)
    overhead_us: float = 0.0

    def known(self, queue: str, task: str) -> Histogram | None:
        """Return the run times of a task, or of its queue; None if too few are known."""
        for runs in (self.tasks.get((queue, task)), self.queues.get(queue)):
            if runs is not None and sum(runs.values()) >= KNOWN_MIN:
                return runs
        return None

    def cost_us(self, queue: str, task: str) -> float | None:
        """Return the mean time for which a job of a task takes a slot; None if it is unknown."""
        runs = self.known(queue, task)
        return None if runs is None else max(1.0, mean_us(runs) + self.overhead_us)


def mean_us(times: Mapping[int, int]) -> float:
    """Return the mean of a histogram that is not empty, in microseconds."""
    return sum(middle_of(step) * number for step, number in times.items()) / sum(times.values())


def merged(workers: Iterable[WorkerTimes]) -> RunTimes:
    """Add up what workers measured."""
    total = RunTimes()
    full_us = run_us = ended = 0
    for worker in workers:
        full_us += worker.full_us
        run_us += worker.run_us
        ended += worker.full_ended
        for queue, times in worker.queues.items():
            for task, measured in times.tasks.items():
                add(total.tasks.setdefault((queue, task), {}), measured.runs)
                add(total.queues.setdefault(queue, {}), measured.runs)
    total.overhead_us = (full_us - run_us) / ended if ended >= KNOWN_MIN else 0.0
    return total


def run_times(records: Records) -> RunTimes:
    """Read the run times of all workers."""
    return merged(worker_times(records).values())
