"""Metrics for Prometheus: what a worker counted, and what its store holds now."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from typing import get_args

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from dueline.admin.cached_value import CachedValue
from dueline.admin.functions import living_functions
from dueline.coordination.worker_registry import live_workers
from dueline.core.attempt import FinalState
from dueline.core.clock import SECOND_US
from dueline.core.engine import Engine
from dueline.core.errors import StoreCorrupt, StoreUnavailable
from dueline.core.logging import log
from dueline.core.version import VERSION
from dueline.durable.stopped import stopped_in
from dueline.jobs.counts import WAITING_STATES, count
from dueline.schedules import scheduler
from dueline.streams import groups, resharding
from dueline.worker.heartbeat import Load
from dueline.worker.tally import BUCKETS_S, Histogram, Totals

SAMPLED_EVERY_US = 10 * SECOND_US
"""Minimum time between reads of the store."""

OLD_US = 30 * SECOND_US
"""Age from which on a sample is not returned while the next one is read."""

COUNTED_MAX = 10_000
"""Maximum number of jobs of all queues that are read for one sample, at least 100 of each."""

COUNTED_US = 2 * SECOND_US
"""Time in microseconds for counting; each queue gets an even share, and at least one lane."""

QUEUES_MAX = 200
"""Maximum number of queues that are counted."""

FUNCTIONS_MAX = 2_000
"""Maximum number of durable functions that are counted."""

OVERDUE_US = 10 * SECOND_US


class StoreMetrics(Collector):
    """Gauges of a store, read when they are scraped, and kept for some seconds.

    Args:
        engine: The store.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._kept = CachedValue(self._read, engine.clock, old_us=OLD_US)

    def describe(self) -> Iterable[Metric]:
        """Return nothing, so that the registry does not read the store."""
        return ()

    def collect(self) -> Iterable[Metric]:
        """Return the gauges; without an answer of the store, only that it is not up."""
        return self._kept.get(SAMPLED_EVERY_US) or ()

    def _read(self) -> Sequence[Metric]:
        up = GaugeMetricFamily("dueline_store_up", "Whether the store answers.")
        try:
            sample, is_up = list(self._sample()), 1
        except StoreUnavailable as error:
            log.warning("the store cannot be sampled for metrics: %s", error)
            sample, is_up = [], 0
        up.add_metric([], is_up)
        return [*sample, up]

    def _sample(self) -> Iterator[Metric]:
        engine = self._engine
        workers = live_workers(engine)
        names = list(_readable(engine, engine.catalog.names()))
        most = max(100, COUNTED_MAX // max(1, len(names)))
        began_us, each_us = engine.clock.monotonic_us(), COUNTED_US // max(1, len(names))
        counts = [
            count(engine, name, workers, most=most, until_us=began_us + place * each_us)
            for place, name in enumerate(names, 1)
        ]
        now_us = engine.time.latest_us()
        jobs = _gauge("jobs", "Jobs by state; see dueline_jobs_capped.", "queue", "state")
        due = _gauge("backlog_due", "Jobs that are due and do not run.", "queue", "shard")
        checkpoints = _gauge(
            "shard_checkpoint_age_seconds", "Age of the oldest due job of a shard.",
            "queue", "shard",
        )  # fmt: skip
        unowned = _gauge("shards_unowned", "Shards that no live worker claims from.", "queue")
        claiming = {queue for worker in workers if worker.is_claiming for queue in worker.queues}
        oldest = _gauge("backlog_oldest_due_seconds", "Age of the oldest due job.", "queue")
        capped = _gauge("jobs_capped", "Whether a queue has more jobs than were counted.", "queue")
        serving = _gauge("queue_workers", "Live workers that serve a queue.", "queue")
        paused = _gauge("queue_paused", "Whether a queue is paused.", "queue")
        for tally in counts:
            for state in (*WAITING_STATES, "dead"):
                jobs.add_metric([tally.queue, state], getattr(tally, state))
            settings = engine.catalog.settings(tally.queue)
            for shard in range(settings.shards_read):
                due.add_metric([tally.queue, str(shard)], tally.ready_by_shard.get(shard, 0))
                since_us = tally.oldest_by_shard.get(shard, now_us)
                age_s = max(0, now_us - since_us) / SECOND_US
                checkpoints.add_metric([tally.queue, str(shard)], age_s)
            is_owned = tally.queue in claiming
            unowned.add_metric([tally.queue], 0 if is_owned else settings.shards_read)
            since_us = now_us if tally.oldest_ready_us is None else tally.oldest_ready_us
            oldest.add_metric([tally.queue], max(0, now_us - since_us) / SECOND_US)
            capped.add_metric([tally.queue], tally.is_capped)
            serving.add_metric([tally.queue], tally.workers)
            paused.add_metric([tally.queue], settings.is_paused)
        yield from (jobs, due, checkpoints, unowned, oldest, capped, serving, paused)
        yield self._stream_lags(now_us)
        yield from self._functions(names, now_us)
        overdue = scheduler.overdue(engine, OVERDUE_US)
        yield _single("schedules_overdue", "Schedules whose jobs are overdue.", len(overdue))
        yield _single("workers", "Live workers of the store.", len(workers))
        skew = engine.time.skew_us() / SECOND_US
        yield _single("clock_offset_seconds", "Clock of this machine minus the store's.", skew)
        build = _gauge("build_info", "Version of dueline and kind of store.", "version", "store")
        build.add_metric([VERSION, kind_of(engine)], 1)
        yield build

    def _functions(self, names: Sequence[str], now_us: int) -> Iterator[Metric]:
        """Yield the gauges of durable functions: of the newest that have begun."""
        functions = _gauge(
            "functions", "Durable functions that have begun; see dueline_functions_capped.",
            "task", "state",
        )  # fmt: skip
        summaries = list(islice(living_functions(self._engine), FUNCTIONS_MAX + 1))
        states = Counter((each.task, each.state) for each in summaries[:FUNCTIONS_MAX])
        for labels, number in states.items():
            functions.add_metric(labels, number)
        yield functions
        is_capped = len(summaries) > FUNCTIONS_MAX
        yield _single("functions_capped", "Whether there are more than were counted.", is_capped)
        oldest = _gauge(
            "functions_stopped_oldest_seconds",
            "How long a durable function is stopped that no worker can continue.", "queue",
        )  # fmt: skip
        for name in names:
            since_us = [stop.since_us for _, stop in stopped_in(self._engine, name)]
            if since_us:
                oldest.add_metric([name], max(0, now_us - min(since_us)) / SECOND_US)
        yield oldest

    def _stream_lags(self, now_us: int) -> Metric:
        lags = _gauge("stream_lag_seconds", "Age of the oldest unread event.", "stream", "group")
        store = self._engine.store
        for stream, settings in resharding.streams(store):
            for group in groups.registered(store, stream):
                shards = resharding.shards_of(settings)
                late_us = groups.waits_us(store, stream, group, shards, now_us=now_us) or 0
                lags.add_metric([stream, group], max(0, late_us) / SECOND_US)
        return lags


class WorkerMetrics(Collector):
    """What one worker counted since its start, in all its processes.

    Args:
        totals: Returns the counts.
        load: Returns what the worker does now.
        store: Kind of its store.
    """

    def __init__(
        self, totals: Callable[[], Totals], load: Callable[[], Load], store: str = ""
    ) -> None:
        self._store = store
        self._totals = totals
        self._load = load

    def describe(self) -> Iterable[Metric]:
        """Return nothing, as `StoreMetrics` does."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Yield the counters, the histograms, and the slots."""
        totals, load = self._totals(), self._load()
        finished = CounterMetricFamily(
            "dueline_jobs_finished", "Jobs that ended.", labels=("queue", "task", "outcome")
        )
        requeued = CounterMetricFamily(
            "dueline_jobs_requeued",
            "Attempts after which the job waits again.",
            labels=("queue", "task", "outcome"),
        )
        for (queue, task, outcome), number in totals.attempts.items():
            family = finished if outcome in get_args(FinalState) else requeued
            family.add_metric([queue, task, outcome], number)
        lost = CounterMetricFamily("dueline_leases_lost", "Lost claims.", labels=("queue",))
        for queue, number in totals.lost.items():
            lost.add_metric([queue], number)
        runs = HistogramMetricFamily(
            "dueline_job_run_seconds", "Run time of attempts.", labels=("queue", "task")
        )
        lates = HistogramMetricFamily(
            "dueline_job_lateness_seconds",
            "Time from a job's due time to its first start.",
            labels=("queue", "band"),
        )
        waits = HistogramMetricFamily(
            "dueline_job_wait_limit_seconds",
            "Time from the due time of a job that needs a limit to its first start.",
            labels=("limit",),
        )
        calls = HistogramMetricFamily(
            "dueline_store_op_seconds",
            "Duration of calls of the store.",
            labels=("store", "op", "outcome"),
        )
        skews = HistogramMetricFamily(
            "dueline_schedule_skew_seconds",
            "Time from an occurrence of a schedule to when its job was stored; 0: ahead of it.",
        )
        replays = HistogramMetricFamily(
            "dueline_function_replay_seconds",
            "Time from the start of a run of a durable function to its first new call.",
            labels=("queue", "task"),
        )
        steps = CounterMetricFamily(
            "dueline_function_steps",
            "Ends of steps of durable functions, of their compensations, and retried attempts.",
            labels=("queue", "task", "kind", "outcome"),
        )
        for labels, number in totals.steps.items():
            steps.add_metric(labels, number)
        inversions = CounterMetricFamily(
            "dueline_priority_inversions",
            "More urgent ready jobs that starts passed, summed over all starts.",
            labels=("queue",),
        )
        for queue, number in totals.inversions.items():
            inversions.add_metric([queue], number)
        _fill(replays, totals.replays.items())
        _fill(skews, [((), totals.skews)])
        _fill(waits, totals.waits.items())
        _fill(calls, (((self._store, *key), histogram) for key, histogram in totals.calls.items()))
        claims = CounterMetricFamily(
            "dueline_claims",
            "Claimed jobs, and claims that found none.",
            labels=("queue", "result"),
        )
        for (queue, result), number in totals.claims.items():
            claims.add_metric([queue, result.replace(" ", "_")], number)
        _fill(runs, totals.runs.items())
        _fill(lates, totals.latencies.items())
        slots = _gauge("worker_slots", "Slots of this worker.", "state")
        slots.add_metric(["busy"], load.running)
        slots.add_metric(["free"], max(0, load.slots - load.running))
        slots.add_metric(["lost"], len(load.lost))  # of the busy ones
        yield from (finished, requeued, lost, claims, runs, lates, waits, calls, skews, slots)
        yield from (replays, steps, inversions)
        draining = "Whether this worker claims nothing any more."
        yield _single("worker_draining", draining, load.is_draining)


def kind_of(engine: Engine) -> str:
    """Return the kind of a store, such as "sqlite"."""
    return type(engine.store).__name__.removesuffix("Store").lower()


def _readable(engine: Engine, names: Iterable[str]) -> Iterator[str]:
    for name in islice(names, QUEUES_MAX):
        with suppress(StoreCorrupt):  # `dueline doctor` names it
            engine.catalog.settings(name)
            yield name


def _gauge(name: str, help_: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"dueline_{name}", help_, labels=labels)


def _single(name: str, help_: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"dueline_{name}", help_, value=value)


def _fill(
    family: HistogramMetricFamily, values: Iterable[tuple[tuple[str, ...], Histogram]]
) -> None:
    bounds = [*(str(float(bound)) for bound in BUCKETS_S), "+Inf"]
    for labels, histogram in values:
        sums, total = [], 0
        for bound, number in zip(bounds, histogram.counts, strict=True):
            total += number
            sums.append((bound, total))
        family.add_metric(labels, sums, histogram.total_us / SECOND_US)
