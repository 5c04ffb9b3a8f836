"""Counts of a worker since its start, for metrics."""

import threading
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable
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

_BOUNDS_US: Final = tuple(round(one * 1e6) for one in BUCKETS_S)


class Histogram:
    """How many durations are in each bucket, and their sum, in microseconds."""

    __slots__ = ("counts", "total_us")

    def __init__(self) -> None:
        self.counts = [0] * (len(BUCKETS_S) + 1)
        self.total_us = 0

    def add(self, span_us: int) -> None:
        """Add a duration; a negative one, of a clock that was set, counts as 0."""
        if span_us > 0:
            self.counts[bisect_left(_BOUNDS_US, span_us)] += 1
            self.total_us += span_us
        else:
            self.counts[0] += 1


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

    def ended(self, ended: Iterable[tuple[Ended, str]]) -> None:
        """Count attempts with their outcomes, which are stored."""
        with self._lock:
            attempts, _, runs, latencies = self._totals
            kind: tuple[object, ...] = ()
            for (job, _, started_us, ended_us), outcome in ended:
                lane = job.lane
                if kind != (lane, job.task, outcome):  # rarely: jobs of one claim share lanes
                    kind = (lane, job.task, outcome)
                    counted = (lane.queue, job.task, outcome)
                    run = runs[lane.queue, job.task]
                    latency = latencies[lane.queue, band_of(lane.priority)]
                attempts[counted] += 1
                if started_us:
                    run.add(ended_us - started_us)
                    if job.fence == 1:
                        latency.add(started_us - job.due_us)

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
