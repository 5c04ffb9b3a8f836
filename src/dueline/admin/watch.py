"""What happens in a store now, and in the last hour: for `dueline top` and the dashboard."""

from collections import Counter, deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

from dueline.admin.cached_value import CachedValue
from dueline.admin.search import ends_of
from dueline.admin.throughput import Throughput, quantile, start_latencies, throughput_from
from dueline.coordination.worker_registry import Presence, present
from dueline.core.attempt import Attempt
from dueline.core.clock import SECOND_US
from dueline.core.engine import Engine
from dueline.foresight.alert_monitor import raised_alerts
from dueline.foresight.alerts import Alert
from dueline.foresight.rates import FAILED
from dueline.jobs.counts import Counts, count
from dueline.jobs.history import Follower
from dueline.jobs.unknown_tasks import known_tasks, unknown_tasks

WINDOW_US = 60 * SECOND_US
"""Period of the rates."""

KEPT_US = 3600 * SECOND_US
"""Period of the series."""

STEP_US = 10 * SECOND_US
"""Period of one point of the series."""

ATTEMPTS_MAX = 20_000
"""Maximum number of attempts in memory; the start latencies are theirs."""

RATE_STEP_US = SECOND_US // 10
"""Attempts are counted in steps of this length, of which a minute is summed for the rates."""

BACKFILL_MAX = 20_000
"""Maximum number of attempts that are read before the first picture."""

COUNTED_MAX = 10_000
"""Maximum number of jobs of one queue that are read for one picture."""

COUNTED_IN_ALL = 12_000
"""Number of jobs of all queues that are read for one picture, at least COUNTED_MIN of each."""

COUNTED_MIN = 500

COUNTED_US = 2 * SECOND_US
"""Time in microseconds after which only the first page of each queue is counted."""

COUNTED_FIRST_US = SECOND_US // 5
"""The same for the first picture, for which people wait."""

SETTLED_US = SECOND_US
"""How long after its end an attempt is in the history, if the store answers in time."""

OLD_US = 30 * SECOND_US
"""Age from which on a picture is not shown while the next one is read."""

FAILURES_MAX = 500
"""Maximum number of tasks whose last failure is kept."""

_LATENCIES_MAX = 2_000
_BACKFILLS_US = (STEP_US, WINDOW_US, 10 * WINDOW_US, KEPT_US)


@dataclass(slots=True)
class Point:
    """The attempts that ended in one step of the series, and the backlog at its end.

    Attributes:
      at_us: When the step began.
      done: Attempts that succeeded.
      failed: Attempts that raised, timed out or died.
      ready: Ready jobs when they were last counted; None if nobody looked.
      latencies: Quantiles of the start latency, in microseconds: 50, 95 and 99 per cent; empty
        without a first attempt.
      is_whole: The step is over, and all of its attempts were read.
    """

    at_us: int
    done: int = 0
    failed: int = 0
    ready: int | None = None
    latencies: tuple[int, ...] = ()
    is_whole: bool = False
    _raw: list[int] = field(default_factory=list, repr=False)

    def add(self, attempt: Attempt) -> None:
        """Count an attempt."""
        self.done += attempt.outcome == "done"
        self.failed += attempt.outcome in FAILED
        if len(self._raw) < _LATENCIES_MAX:
            self._raw += start_latencies([attempt])

    def summarize(self, *, is_over: bool) -> None:
        """Compute the quantiles; the latencies of a step that is over are dropped."""
        if self._raw:
            ordered = sorted(self._raw)
            self.latencies = tuple(quantile(ordered, percent) or 0 for percent in (50, 95, 99))
            if is_over:
                self._raw = []


class Picture(NamedTuple):
    """The state of a store at one time.

    Attributes:
      rates: Attempts that were done in a minute, by queue.
      series: The points of the last hour that are known, the oldest first.
      unknown: What no live worker of a queue can do for ready jobs, in words, by queue.
      failures: The last failed attempt that was read of each task.
      paused: The queues that are paused.
      alerts: What is wrong, as the maintenance leader has found.
    """

    now_us: int
    throughput: Throughput
    counts: Sequence[Counts]
    workers: Sequence[Presence]
    rates: Mapping[str, int] = {}
    series: Sequence[Point] = ()
    unknown: Mapping[str, Sequence[str]] = {}
    failures: Mapping[str, Attempt] = {}
    paused: Collection[str] = ()
    alerts: Sequence[Alert] = ()


class Watch:
    """Reads pictures of a store, one after the other; threads may share it.

    What was read is kept: a picture costs the attempts since the last one, and the counts.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._kept = CachedValue(self._look, engine.clock, old_us=OLD_US)
        self._follower: Follower | None = None
        self._recent: deque[Attempt] = deque(maxlen=ATTEMPTS_MAX)
        self._ended: dict[int, Counter[tuple[str, str]]] = {}
        self._points: dict[int, Point] = {}
        self._failures: dict[str, Attempt] = {}
        self._last: Picture | None = None
        self._since_us = 0

    def look(self, *, max_age_us: int = 0) -> Picture:
        """Return a picture that is at most this old, or older if reading takes long.

        With a maximum age, reading takes at most a tenth of the time: workers need the store, too.
        """
        picture = self._kept.get(max_age_us) if max_age_us else self._kept.now()
        assert picture is not None
        return picture

    def _look(self) -> Picture:
        self._last = self._read(self._engine.time.latest_us())
        return self._last

    def _read(self, now_us: int) -> Picture:
        engine = self._engine
        names = engine.catalog.names()
        if (
            self._follower is None
            or self._last is None
            or now_us - self._last.now_us > 2 * WINDOW_US
        ):
            self._start(names, now_us)
        assert self._follower is not None
        shards = {name: engine.catalog.settings(name).shards_read for name in names}
        for attempt in self._follower.read(shards):
            self._recent.append(attempt)
            ended = self._ended.setdefault(attempt.ended_us // RATE_STEP_US, Counter())
            ended[attempt.queue, attempt.outcome] += 1
            if attempt.outcome in FAILED:
                self._keep_failure(attempt)
            step_us = attempt.ended_us - attempt.ended_us % STEP_US
            self._points.setdefault(step_us, Point(step_us)).add(attempt)
        now_us = engine.time.latest_us()
        while self._recent and self._recent[0].ended_us < now_us - WINDOW_US:
            self._recent.popleft()
        for step in [step for step in self._ended if step < (now_us - WINDOW_US) // RATE_STEP_US]:
            del self._ended[step]
        workers = present(engine.store)
        counts = self._counts(names, workers)
        span_us = min(WINDOW_US, max(1, now_us - self._since_us))
        done: Counter[str] = Counter()
        outcomes: Counter[str] = Counter()
        for ended in self._ended.values():
            for (queue, outcome), many in ended.items():
                outcomes[outcome] += many
                if outcome == "done":
                    done[queue] += many
        rates = {name: number * WINDOW_US // span_us for name, number in done.items()}
        unknown = {
            count.queue: sorted(
                task.text
                for task in unknown_tasks(
                    engine, count.queue, known_tasks(count.queue, workers), now_us
                ).values()
            )
            for count in counts
            if count.ready and count.workers
        }
        return Picture(
            now_us,
            throughput_from(outcomes, start_latencies(self._recent), span_us),
            counts,
            workers,
            rates,
            self._series(now_us, sum(count.ready for count in counts)),
            unknown,
            dict(self._failures),
            frozenset(name for name in names if engine.catalog.settings(name).is_paused),
            raised_alerts(engine),
        )

    def _keep_failure(self, attempt: Attempt) -> None:
        """Keep the last failure of a task: shards are read one after the other."""
        known = self._failures.get(attempt.task)
        if known is None and len(self._failures) >= FAILURES_MAX:
            return
        if known is None or known.ended_us <= attempt.ended_us:
            self._failures[attempt.task] = attempt

    def _counts(self, names: Sequence[str], workers: Sequence[Presence]) -> list[Counts]:
        """Count all queues; what small ones leave of the maximum is for larger ones."""
        known = {} if self._last is None else {counts.queue: counts for counts in self._last.counts}
        fresh: dict[str, Counts] = {}
        left = COUNTED_IN_ALL
        span_us = COUNTED_FIRST_US if self._last is None else COUNTED_US
        until_us = self._engine.clock.monotonic_us() + span_us
        for name in sorted(names, key=lambda name: known[name].living() if name in known else 0):
            most = min(COUNTED_MAX, max(COUNTED_MIN, left // (len(names) - len(fresh))))
            counts = fresh[name] = count(self._engine, name, workers, most=most, until_us=until_us)
            left -= counts.living() + counts.dead
        return [fresh[name] for name in names]

    def _start(self, names: Sequence[str], now_us: int) -> None:
        """Follow the history from as far back as few attempts ended."""
        now_us -= now_us % STEP_US
        since_us = now_us - _BACKFILLS_US[0]
        for back_us in _BACKFILLS_US:
            past = ends_of(self._engine, names, now_us - back_us)
            if sum(1 for _ in islice(past, BACKFILL_MAX + 1)) > BACKFILL_MAX:
                break
            since_us = now_us - back_us
        self._recent.clear()
        self._ended.clear()
        self._points = {at_us: point for at_us, point in self._points.items() if at_us < since_us}
        self._since_us = since_us
        self._follower = Follower(self._engine.store, since_us=since_us)

    def _series(self, now_us: int, ready: int) -> list[Point]:
        current_us = now_us - now_us % STEP_US
        self._points.setdefault(current_us, Point(current_us)).ready = ready
        for at_us in [at_us for at_us in self._points if at_us < now_us - KEPT_US]:
            del self._points[at_us]
        for at_us in range(min(self._points), current_us, STEP_US):  # without an attempt
            self._points.setdefault(at_us, Point(at_us))
        for at_us, point in self._points.items():
            point.summarize(is_over=at_us < current_us - STEP_US)
            point.is_whole |= self._since_us <= at_us <= now_us - STEP_US - SETTLED_US
        return [self._points[at_us] for at_us in sorted(self._points)]
