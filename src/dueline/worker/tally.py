"""Counts of a worker since its start, for metrics."""

import threading
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from copy import deepcopy
from typing import Final, NamedTuple

from dueline.core.attempt import Ended
from dueline.core.deadlines import deadline_of
from dueline.core.job import Job
from dueline.core.lane import limits_of
from dueline.core.limit_names import semaphore_of
from dueline.core.store import Claimed, Want
from dueline.core.store_capabilities import PrefetchResult
from dueline.worker.inversions import StartOrder

BUCKETS_S: Final = (
    *(0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75),
    *(1, 2.5, 5, 7.5, 10, 30, 60, 300, 1800),
)
"""Upper bounds of the histograms, in seconds."""

_BOUNDS_US: Final = tuple(round(bound_s * 1e6) for bound_s in BUCKETS_S)


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
      waits: Start latencies of first attempts that need a limit, by its name without the key.
      claims: Claimed jobs, by queue and "new" or "taken over" from a worker that died, and calls
        that found no job ("empty").
      calls: Durations of calls of the store by name and outcome.
      skews: How long after the times of their occurrences the jobs of schedules were stored.
      replays: Durations of replays of durable functions by queue and task.
      steps: Ends of steps by queue, task, kind ("step", or "undo" for compensations), and outcome.
      inversions: How many more urgent jobs that were ready all starts passed, by queue.
    """

    attempts: Counter[tuple[str, str, str]]
    lost: Counter[str]
    runs: defaultdict[tuple[str, str], Histogram]
    latencies: defaultdict[tuple[str, str], Histogram]
    waits: defaultdict[tuple[str], Histogram]
    claims: Counter[tuple[str, str]]
    calls: defaultdict[tuple[str, str], Histogram]
    skews: Histogram
    replays: defaultdict[tuple[str, str], Histogram]
    steps: Counter[tuple[str, str, str, str]]
    inversions: Counter[str]


class Tally:
    """Counts attempts of all handlers of a worker, those in child processes too.

    The worker's threads write, and any thread may read.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._totals = Totals(
            Counter(), Counter(), defaultdict(Histogram), defaultdict(Histogram),
            defaultdict(Histogram), Counter(), defaultdict(Histogram), Histogram(),
            defaultdict(Histogram), Counter(), Counter(),
        )  # fmt: skip
        self._orders: defaultdict[str, StartOrder] = defaultdict(StartOrder)

    def ended(self, ended: Iterable[tuple[Ended, str]]) -> None:
        """Count attempts with their outcomes, which are stored."""
        with self._lock:
            attempts, _, runs, latencies, waits, *_, inversions = self._totals
            kind: tuple[object, ...] = ()
            for (job, _, started_us, ended_us), outcome in ended:
                lane = job.lane
                if kind != (lane, job.task, outcome):  # rarely: jobs of one claim share lanes
                    kind = (lane, job.task, outcome)
                    counted = (lane.queue, job.task, outcome)
                    run = runs[lane.queue, job.task]
                    latency = latencies[lane.queue, band_of(lane.priority)]
                    limits = sorted({semaphore_of(limit) for limit in limits_of(lane)})
                    order = self._orders[lane.queue]
                    start = order.starts_of(lane.priority).append
                    is_mixed = order.is_mixed
                attempts[counted] += 1
                if started_us:
                    run.add(ended_us - started_us)
                    if is_mixed:
                        inversions[lane.queue] += order.passed(job, started_us)
                    else:
                        start(started_us)
                    if job.fence == 1:
                        latency.add(started_us - job.due_us)
                        for name in limits:
                            waits[name,].add(started_us - job.due_us)

    def lost(self, job: Job) -> None:
        """Count a lost claim."""
        with self._lock:
            self._totals.lost[job.lane.queue] += 1

    def called(self, call: str, outcome: str, took_us: int) -> None:
        """Count a call of the store."""
        with self._lock:
            self._totals.calls[call, outcome].add(took_us)

    def scheduled(self, skews_us: Iterable[int]) -> None:
        """Count jobs of schedules that were stored."""
        with self._lock:
            for skew_us in skews_us:
                self._totals.skews.add(skew_us)

    def replayed(self, job: Job, took_us: int) -> None:
        """Count a run of a durable function, with the time of its replay."""
        with self._lock:
            self._totals.replays[job.lane.queue, job.task].add(took_us)

    def step(self, job: Job, kind: str, outcome: str) -> None:
        """Count the end of a step or compensation of a durable function."""
        with self._lock:
            self._totals.steps[job.lane.queue, job.task, kind, outcome] += 1

    def claimed(self, wants: Sequence[Want], result: Claimed | PrefetchResult) -> None:
        """Count what a claim found."""
        with self._lock:
            claims = self._totals.claims
            if isinstance(result, PrefetchResult):
                claims.update((job.job.lane.queue, "new") for job in result.jobs)
            elif result.jobs:  # wants of one call are of one queue
                queue, died = result.jobs[0].lane.queue, len(result.died)
                claims[queue, "new"] += len(result.jobs) - died
                if died:
                    claims[queue, "taken over"] += died
            elif wants:
                claims[wants[0].lane.queue, "empty"] += 1

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
