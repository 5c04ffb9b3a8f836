"""Counts of a worker since its start, for metrics."""

import threading
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Sequence
from copy import deepcopy
from typing import Final, NamedTuple

from dueline.core.attempt import Ended
from dueline.core.deadlines import deadline_of
from dueline.core.job import Job

BUCKETS_S: Final = (
    *(0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75),
    *(1, 2.5, 5, 7.5, 10, 30, 60, 300, 1800),
)
"""Upper bounds of the histograms, in seconds."""


class Histogram:
    """How many values are at most as large as each bound, and their sum, in seconds."""

    __slots__ = ("counts", "total_s")

    def __init__(self) -> None:
        self.counts = [0] * (len(BUCKETS_S) + 1)
        self.total_s = 0.0

    def add(self, value_us: int) -> None:
        """Add a duration."""
        value_s = value_us / 1e6
        self.counts[bisect_left(BUCKETS_S, value_s)] += 1
        self.total_s += value_s

    def mean_s(self) -> float | None:
        """Return the mean of the values; None without any."""
        return self.total_s / sum(self.counts) if any(self.counts) else None


class Totals(NamedTuple):
    """What was counted.

    Attributes:
      attempts: Attempts by queue, task and outcome.
      lost: Lost claims by queue.
      runs: Durations of handlers by queue and task.
      latencies: Start latencies of first attempts by queue and band of priority.
    """

    attempts: Counter[tuple[str, str, str]]
    lost: Counter[str]
    runs: defaultdict[tuple[str, str], Histogram]
    latencies: defaultdict[tuple[str, str], Histogram]


class Tally:
    """Counts attempts of all handlers of a worker, those in child processes too.

    The worker's threads write, and any thread may read.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._totals = Totals(
            Counter(), Counter(), defaultdict(Histogram), defaultdict(Histogram)
        )  # fmt: skip

    def ended(self, ended: Sequence[Ended], outcomes: Sequence[str]) -> None:
        """Count attempts whose endings are stored."""
        with self._lock:
            attempts, _, runs, latencies = self._totals
            for (job, _, started_us, ended_us), outcome in zip(ended, outcomes, strict=True):
                queue, task = job.lane.queue, job.task
                attempts[queue, task, outcome] += 1
                if started_us:
                    runs[queue, task].add(max(0, ended_us - started_us))
                    if job.fence == 1:
                        late_us = max(0, started_us - job.due_us)
                        latencies[queue, band_of(job.lane.priority)].add(late_us)

    def lost(self, job: Job) -> None:
        """Count a lost claim."""
        with self._lock:
            self._totals.lost[job.lane.queue] += 1

    def totals(self) -> Totals:
        """Return a copy of what was counted."""
        with self._lock:
            return deepcopy(self._totals)


def band_of(priority: int) -> str:
    """Return the band of a priority: few words, whatever numbers an application uses."""
    if priority == 0:
        return "normal"
    if priority > 0:
        return "high"
    return "low" if deadline_of(priority) is None else "deadline"
