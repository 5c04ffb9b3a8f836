"""How much each queue did in the last minutes: starts and their latencies, and failures by task.

The maintenance leader reads what workers counted, and keeps sums in which older events count less.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from math import exp
from typing import Final, NamedTuple, Self, TypeVar

from dueline.coordination import notes
from dueline.coordination.run_times import WorkerTimes, bounds_of, step_of, worker_times
from dueline.core.attempt import Attempt
from dueline.core.clock import DAY_US, SECOND_US
from dueline.core.codec import encode
from dueline.core.engine import Engine
from dueline.core.maintenance import MaintenanceTask, StepResult
from dueline.core.queue_settings import shard_of
from dueline.foresight import hours

K = TypeVar("K")

KIND: Final = "rates"

WINDOWS_US: Final = (60 * SECOND_US, 300 * SECOND_US, 3600 * SECOND_US, DAY_US)
"""Durations after which an event counts a third: a minute, five minutes, an hour, a day."""

EVERY_US: Final = 15 * SECOND_US
KEEP_US: Final = 3 * DAY_US

SEEN_US: Final = 3600 * SECOND_US

TASKS_MAX: Final = 200
"""Maximum number of tasks of a queue that are kept."""

_LEAST: Final = 0.01

_DIGITS: Final = 6
"""Decimal places of sums: with three, a sum of 2 in a day would never fall."""

FAILED: Final = ("retried", "dead", "crashed")
"""Outcomes of attempts that failed."""


class Sums(NamedTuple):
    """Sums of one kind of event, for each of WINDOWS_US."""

    minute: float = 0.0
    minutes: float = 0.0
    hour: float = 0.0
    day: float = 0.0

    def after(self, passed_us: int, more: float) -> Self:
        """Return the sums after some time, with more events."""
        return type(self)(
            *(
                round(number * exp(-passed_us / window_us) + more, _DIGITS)
                for number, window_us in zip(self, WINDOWS_US, strict=True)
            )
        )


@dataclass(frozen=True, slots=True)
class QueueRates:
    """What a queue did.

    Attributes:
      since_us: When counting began.
      at_us: Until when events are counted.
      latencies: First attempts by the step of their start latency.
      ended, failed: Attempts by task.
      shards, tenants: When a job of each was last seen to have run, within the last hour.
    """

    since_us: int
    at_us: int
    latencies: Mapping[int, Sums] = field(default_factory=dict)
    ended: Mapping[str, Sums] = field(default_factory=dict)
    failed: Mapping[str, Sums] = field(default_factory=dict)
    shards: Mapping[str, int] = field(default_factory=dict)
    tenants: Mapping[str, int] = field(default_factory=dict)

    @property
    def moved_us(self) -> int:
        """When a job was last seen to have run; 0 if that is long ago."""
        return max(self.shards.values(), default=0)

    def per_s(self) -> float:
        """Return how many attempts end in a second: in the last minutes or hour, what is more."""
        counted_us = self.at_us - self.since_us
        ended = _total(self.ended.values())
        return max(
            ended[place] * SECOND_US / (window_us * (1 - exp(-counted_us / window_us)))
            for place, window_us in enumerate(WINDOWS_US)
            if 0 < place < len(WINDOWS_US) - 1
        )

    def starts(self) -> Sums:
        """Return how many first attempts started."""
        return _total(self.latencies.values())

    def late(self, most_us: int) -> Sums:
        """Return how many first attempts started later than `most_us` after their due time."""
        return _total(
            sums for step, sums in self.latencies.items() if bounds_of(step)[0] >= most_us
        )


def _total(sums: Iterable[Sums]) -> Sums:
    return Sums(*map(sum, zip(*sums, strict=True)))


@dataclass(frozen=True, slots=True)
class Counted:
    """What was counted in a queue since the last read."""

    latencies: dict[int, int] = field(default_factory=dict)
    ended: dict[str, int] = field(default_factory=dict)
    failed: dict[str, int] = field(default_factory=dict)
    shards: dict[str, int] = field(default_factory=dict)
    tenants: dict[str, int] = field(default_factory=dict)


class Deltas:
    """What workers counted since this process last read it; a new worker counts from its start."""

    def __init__(self) -> None:
        self._seen: Mapping[str, WorkerTimes] | None = None

    def since_last(self, times: Mapping[str, WorkerTimes]) -> dict[str, Counted]:
        """Return what was counted, by queue; nothing at the first call."""
        before, self._seen = self._seen, times
        if before is None:
            return {}
        by_queue: dict[str, Counted] = {}
        for worker, now in times.items():
            old = before.get(worker)
            for queue, counted in now.queues.items():
                last = old.queues.get(queue) if old else None
                into = by_queue.setdefault(queue, Counted())
                _add(into.latencies, counted.latencies, last.latencies if last else {})
                for into_, counts, past_ in (
                    (into.shards, counted.shards, last.shards if last else {}),
                    (into.tenants, counted.tenants, last.tenants if last else {}),
                ):
                    _add(
                        into_,
                        {str(k): n for k, n in counts.items()},
                        {str(k): n for k, n in past_.items()},
                    )
                for task, measured in counted.tasks.items():
                    past = last.tasks.get(task) if last else None
                    _add(into.ended, {task: measured.ended}, {task: past.ended if past else 0})
                    _add(into.failed, {task: measured.failed}, {task: past.failed if past else 0})
        return by_queue


def _add(into: dict[K, int], now: Mapping[K, int], before: Mapping[K, int]) -> None:
    for key, number in now.items():
        if number > before.get(key, 0):
            into[key] = into.get(key, 0) + number - before.get(key, 0)


def counted(attempts: Iterable[Attempt], shards: Mapping[str, int]) -> dict[str, Counted]:
    """Count attempts by queue, in this process. shards: number of shards of each queue."""
    by_queue: dict[str, Counted] = {}
    for attempt in attempts:
        into = by_queue.setdefault(attempt.queue, Counted())
        if attempt.started_us:
            plus(into.ended, attempt.task)
            plus(into.shards, str(shard_of(bytes.fromhex(attempt.job), shards[attempt.queue])))
            plus(into.tenants, attempt.tenant)
            if attempt.fence == 1:
                plus(into.latencies, step_of(max(0, attempt.started_us - attempt.due_us)))
        if attempt.outcome in FAILED:
            plus(into.failed, attempt.task)
    return by_queue


def plus(into: dict[K, int], key: K, number: int = 1) -> None:
    """Count a key."""
    into[key] = into.get(key, 0) + number


def rates_of(engine: Engine, queue: str) -> QueueRates | None:
    """Return what a queue did; None if nothing was counted in the last days."""
    return notes.value(engine.store, KIND, queue, QueueRates)


def after_counting(before: QueueRates | None, more: Counted | None, now_us: int) -> QueueRates:
    """Return what a queue did, with what was counted since."""
    old = before or QueueRates(now_us - 1, now_us)
    new = more or Counted()
    passed_us = now_us - old.at_us
    ended = _updated(old.ended, new.ended, passed_us)
    if len(ended) > TASKS_MAX:
        most = sorted(ended, key=lambda task: -ended[task].day)[:TASKS_MAX]
        ended = {task: ended[task] for task in most}
    failed = _updated(old.failed, new.failed, passed_us)
    return QueueRates(
        old.since_us,
        now_us,
        _updated(old.latencies, new.latencies, passed_us),
        ended,
        {task: sums for task, sums in failed.items() if task in ended},
        _last_seen(old.shards, new.shards, now_us),
        _last_seen(old.tenants, new.tenants, now_us),
    )


def _last_seen(old: Mapping[str, int], new: Mapping[str, int], now_us: int) -> dict[str, int]:
    seen_us = {**old, **dict.fromkeys(new, now_us)}
    return {name: at_us for name, at_us in seen_us.items() if at_us > now_us - SEEN_US}


def _updated(old: Mapping[K, Sums], new: Mapping[K, int], passed_us: int) -> dict[K, Sums]:
    totals = {key: old.get(key, Sums()).after(passed_us, new.get(key, 0)) for key in {**old, **new}}
    return {key: sums for key, sums in totals.items() if sums.day >= _LEAST}


def task(
    when_counted: Callable[[Mapping[str, Counted], int], object] = lambda *_: None,
) -> MaintenanceTask:
    """Return the maintenance task that counts what queues did.

    Args:
        when_counted: Called with what was counted by queue since the last call, and the time.
    """
    deltas = Deltas()

    def count(engine: Engine, _: str | None) -> StepResult:
        now_us = engine.time.latest_us()
        puts, jobs = [], 0
        counted_now = deltas.since_last(worker_times(engine.store))
        when_counted(counted_now, now_us)
        for queue, more in sorted(counted_now.items()):
            if more != Counted():
                jobs += sum(more.latencies.values())
                rates = after_counting(rates_of(engine, queue), more, now_us)
                version, expires_us = engine.ids.token(), now_us + KEEP_US
                puts.append(notes.put(KIND, queue, encode(rates), version, expires_us=expires_us))
        if jobs:
            week = hours.after_jobs(hours.hours_of(engine), jobs, now_us)
            puts.append(notes.put(hours.KIND, hours.NAME, encode(week), engine.ids.token()))
        return StepResult(len(puts), puts=puts)

    return MaintenanceTask("rates", EVERY_US, count)
