"""The engine of alerts: judges a queue by its lanes, its workers, and what was counted.

Two faces feed it: the maintenance leader with the counters of workers (`alert_monitor`), and
`dueline.spark.alerts` with what it counts in the history as that grows.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from types import MappingProxyType
from typing import Final, NamedTuple
from zlib import crc32

from dueline.coordination.failed_starts import FailedStart, failed_starts
from dueline.coordination.worker_registry import Presence, live_workers
from dueline.core.clock import SECOND_US
from dueline.core.durations import span_text
from dueline.core.engine import Engine
from dueline.core.job import JobId
from dueline.core.lane import Lane, bucket_of, tenant_of
from dueline.durable.stopped import stopped_in
from dueline.foresight import dead_growth, missed_occurrences
from dueline.foresight.alerts import Alert, Miss, Signals, Stopped, Wait, after, conditions
from dueline.foresight.dead_growth import DeadPast
from dueline.foresight.failing_tasks import TaskPast, look_at
from dueline.foresight.missed_occurrences import Occurrences
from dueline.foresight.rates import QueueRates, after_counting
from dueline.foresight.run_times import RunTimes, run_times
from dueline.foresight.target import Target
from dueline.jobs.circuit_records import open_in
from dueline.limits.usage import BusyLimits

LANES_MAX: Final = 2_000
"""Maximum number of lanes of a queue that are read."""

HEADS_MAX: Final = 100
"""Maximum number of heads of a shard or tenant that are remembered."""

TENANTS_MAX: Final = 1_000
AHEAD_US: Final = 3600 * SECOND_US
ROWS_MAX: Final = 2_000
"""How far ahead a queue with a target is forecast, and from how many rows."""

RISES, RISES_SLOW = 3, 8
"""Number of looks in which the wait has to rise, until its rise is taken to go on."""

FAST: Final = 0.25
"""A wait that grows by less of the time that passes is slow: waits near the limit of what workers
can run rise and fall like that without a cause.
"""

RISEN_US: Final = 5 * SECOND_US
"""Wait that is enough for such a forecast; a quarter of the target, if that is less."""


@dataclass(frozen=True, slots=True)
class Group:
    """Ready jobs of a shard or tenant. heads: of its lanes. since_us: since when all are there."""

    heads: tuple[int, ...]
    since_us: int
    oldest_us: int


@dataclass(frozen=True, slots=True)
class Seen:
    """What was seen of a queue before. waits_us: the wait of its oldest job in the last looks."""

    shards: Mapping[str, Group] = field(default_factory=dict)
    tenants: Mapping[str, Group] = field(default_factory=dict)
    moved_us: int = 0
    looks: Sequence[tuple[int, int]] = ()


@dataclass(frozen=True, slots=True)
class Note:
    """The alerts of a queue, and what was seen of it, of its tasks and of its schedules."""

    alerts: Sequence[Alert] = ()
    seen: Seen = field(default_factory=Seen)
    tasks: Mapping[str, TaskPast] = field(default_factory=dict)
    dead: DeadPast | None = None
    schedules: Mapping[str, int] | None = None


class View(NamedTuple):
    """What all queues have in common.

    Attributes:
      failed: Applications that cannot be imported, by queue.
      occurrences: What became of the occurrences of schedules, by queue.
    """

    engine: Engine
    workers: Sequence[Presence]
    times: RunTimes
    now_us: int
    failed: Mapping[str, Sequence[FailedStart]]
    occurrences: Mapping[str, Sequence[Occurrences]] = MappingProxyType({})


def view_of(
    engine: Engine, occurrences: Mapping[str, Sequence[Occurrences]] = MappingProxyType({})
) -> View:
    """Return what all queues have in common now. occurrences: those of schedules, by queue."""
    now_us = engine.time.latest_us()
    times, failed = run_times(engine.store), failed_by_queue(engine)
    return View(engine, live_workers(engine), times, now_us, failed, occurrences)


def failed_by_queue(engine: Engine) -> dict[str, list[FailedStart]]:
    """Return the applications that cannot be imported, by the first of their queues.

    Which queues an application serves is not known without it: the first queue names it then.
    """
    by_queue: dict[str, list[FailedStart]] = {}
    names = engine.catalog.names()
    for failed in failed_starts(engine.store):
        queue = next((name for name in failed.queues if name in names), next(iter(names), ""))
        by_queue.setdefault(queue, []).append(failed)
    return by_queue


def judge(
    view: View, queue: str, target: Target | None, before: Note, rates: QueueRates | None
) -> tuple[Note, Sequence[Alert]]:
    """Return what to keep of a queue, and its alerts that were raised or ended.

    Args:
      before: What the last call kept.
      rates: What the queue did.
    """
    signals, seen = _look(view, queue, target, before.seen, rates)
    raised = frozenset(alert.condition.key for alert in before.alerts)
    current = conditions(signals, raised=raised)
    is_dead = any(alert.condition.kind == "dead" for alert in before.alerts)
    dead, growing = dead_growth.look_at(
        view.engine, queue, before.dead, is_raised=is_dead, now_us=view.now_us
    )
    current += growing
    tasks = before.tasks
    if rates is not None:
        failing = {
            alert.condition.subject for alert in before.alerts if alert.condition.kind == "failures"
        }
        tasks, failures = look_at(tasks, rates, failing, queue=queue, now_us=view.now_us)
        current += failures
    schedules, missed = missed_occurrences.look_at(
        before.schedules, view.occurrences.get(queue, ()), queue
    )
    current += missed
    alerts, changed = after(before.alerts, current, view.now_us)
    return Note(alerts, seen, tasks, dead, schedules), changed


def _look(
    view: View, queue: str, target: Target | None, before: Seen, rates: QueueRates | None
) -> tuple[Signals, Seen]:
    """Return what is known of a queue now, and what to remember of it."""
    now_us = view.now_us
    by_shard: dict[str, dict[int, int]] = {}
    by_tenant: dict[str, dict[int, int]] = {}
    overdue = 0
    for lane, at_us in _ready(view, queue):
        head = crc32(repr((lane, at_us)).encode())
        for groups, name in ((by_shard, str(lane.shard)), (by_tenant, tenant_of(lane))):
            groups.setdefault(name, {})[head] = at_us
        overdue += target is not None and now_us - at_us > target.most_us
    shards = _grouped(by_shard, before.shards, now_us)
    tenants = _grouped(dict(islice(by_tenant.items(), TENANTS_MAX)), before.tenants, now_us)
    moved_us = _moved_us(before, shards, tenants, now_us)
    serving = [worker for worker in view.workers if queue in worker.queues and worker.is_claiming]
    oldest_us = min((shard.oldest_us for shard in shards.values()), default=now_us)
    looks = [*before.looks, (now_us, now_us - oldest_us)][-RISES_SLOW - 1 :]
    signals = Signals(
        queue,
        now_us,
        None if rates is None else after_counting(rates, None, now_us),
        target,
        shards=_waits(shards, {} if rates is None else rates.shards),
        tenants=_waits(tenants, {} if rates is None else rates.tenants),
        overdue=overdue,
        workers=len(serving),
        has_room=any(worker.held < worker.slots for worker in serving),
        moved_us=max(moved_us, 0 if rates is None else rates.moved_us),
        stopped=_stopped(view.engine, queue),
        paused_us=_paused_us(view, queue),
        failed=view.failed.get(queue, ()),
        circuits=open_in(view.engine.store, queue),
        miss=None
        if target is None
        else _rising(looks, target) or _burst(view, queue, target, serving, rates),
    )
    return signals, Seen(shards, tenants, moved_us, looks)


def _stopped(engine: Engine, queue: str) -> dict[str, Stopped]:
    """Return the durable functions that no worker can continue, by task."""
    by_task: dict[str, Stopped] = {}
    for row, stop in stopped_in(engine, queue):
        known = by_task.get(row.task, Stopped(0, stop.since_us, stop.why))
        first = min(known, Stopped(0, stop.since_us, stop.why), key=lambda each: each.since_us)
        by_task[row.task] = first._replace(number=known.number + 1)
    return by_task


def _paused_us(view: View, queue: str) -> int:
    """Return since when the oldest ready job of a paused queue waits; 0 for none."""
    if not view.engine.catalog.settings(queue).is_paused:
        return 0
    return min((at_us for _, at_us in _due(view, queue)), default=0)


def _ready(view: View, queue: str) -> Iterator[tuple[Lane, int]]:
    """Yield the lanes with ready jobs that no pause and no limit holds, and since when."""
    if not view.engine.catalog.settings(queue).is_paused:
        yield from _due(view, queue)


def _due(view: View, queue: str) -> Iterator[tuple[Lane, int]]:
    engine, now_us = view.engine, view.now_us
    settings = engine.catalog.settings(queue)
    limits = BusyLimits(engine)
    seen: set[Lane] = set()
    for page in engine.pages_of(queue, bucket_of(now_us, settings.width_us)):
        for _, lane in page.pointers:
            if lane in seen or tenant_of(lane) in settings.paused_tenants:
                continue
            if len(seen) >= LANES_MAX:
                return
            seen.add(lane)
            at_us = page.heads.get(lane, 0)
            if lane not in page.heads:
                rows = engine.store.scan(lane, after=None, until_us=now_us, limit=1).jobs
                at_us = rows[0].at_us if rows else None
            if at_us is not None and at_us <= now_us and not limits.has(lane):
                yield lane, at_us


def _grouped(
    by_name: Mapping[str, Mapping[int, int]], before: Mapping[str, Group], now_us: int
) -> dict[str, Group]:
    groups = {}
    for name, heads in by_name.items():
        oldest_us, last = min(heads.values()), before.get(name)
        is_still = last is not None and heads.keys() >= set(last.heads)
        since_us = last.since_us if last is not None and is_still else now_us
        kept = tuple(sorted(heads, key=heads.__getitem__)[:HEADS_MAX])
        groups[name] = Group(kept, since_us, oldest_us)
    return groups


def _waits(groups: Mapping[str, Group], ran_us: Mapping[str, int]) -> dict[str, Wait]:
    """Return the waits of groups. ran_us: when a job of each was last seen to have run."""
    return {
        name: Wait(group.oldest_us, max(group.since_us, ran_us.get(name, 0)))
        for name, group in groups.items()
    }


def _moved_us(
    before: Seen, shards: Mapping[str, Group], tenants: Mapping[str, Group], now_us: int
) -> int:
    """Return when a job was claimed last: a head that was there before is gone."""
    for old, new in ((before.shards, shards), (before.tenants, tenants)):
        for name, group in old.items():
            if name not in new or new[name].since_us == now_us != group.since_us:
                return now_us
    return before.moved_us


def _rising(looks: Sequence[tuple[int, int]], target: Target) -> Miss | None:
    """Return when the wait passes the target if it goes on rising as it has."""
    for rises, least in ((RISES, FAST), (RISES_SLOW, 0.0)):
        recent = looks[-rises - 1 :]
        waits_us = [wait_us for _, wait_us in recent]
        if len(recent) <= rises or sorted(set(waits_us)) != waits_us:
            return None
        (first_us, least_us), (last_us, most_us) = recent[0], recent[-1]
        rise = (most_us - least_us) / (last_us - first_us)
        if rise < least or most_us < min(target.most_us // 4, RISEN_US):
            continue
        at_us = last_us + round(max(0, target.most_us - most_us) / rise)
        if at_us > last_us + AHEAD_US:
            return None
        cause = f"the wait of its oldest job grows by {span_text(round(60e6 * rise))} a minute."
        return Miss(at_us, 1.0, cause)
    return None


def _burst(
    view: View, queue: str, target: Target, serving: Sequence[Presence], rates: QueueRates | None
) -> Miss | None:
    """Return when jobs that are scheduled within the next hour start too late."""
    slots = sum(worker.own[queue][0] if queue in worker.own else worker.slots for worker in serving)
    cost_us = view.times.cost_us(queue, "")
    if not slots or cost_us is None:
        return None
    dues = sorted(islice(_scheduled(view, queue), ROWS_MAX))
    per_s = 0.0 if rates is None else after_counting(rates, None, view.now_us).per_s()
    besides = max(0.0, per_s - len(dues) * SECOND_US / AHEAD_US)
    gap_us = cost_us / slots / max(0.05, 1 - besides * cost_us / slots / SECOND_US)
    free_us, late_us = float(view.now_us), []
    for at_us in dues:
        free_us = max(free_us, at_us) + gap_us
        if free_us - gap_us - at_us > target.most_us:
            late_us.append(at_us)
    share = len(late_us) / (len(dues) + besides * AHEAD_US / SECOND_US or 1.0)
    if share <= 1 - target.share:
        return None
    cause = (
        f"of the jobs that are due within the hour, {len(late_us)} start later than "
        f"{span_text(target.most_us)} with {slots} slots."
    )
    return Miss(late_us[0], share, cause)


def _scheduled(view: View, queue: str) -> Iterator[int]:
    """Yield the due times of jobs of the next hour, lane by lane."""
    end_us = view.now_us + AHEAD_US
    after = (view.now_us, JobId(b"\xff" * 16))
    width_us = view.engine.catalog.settings(queue).width_us
    seen: set[Lane] = set()
    for page in view.engine.pages_of(queue, bucket_of(end_us, width_us)):
        for _, lane in page.pointers:
            if lane not in seen:
                seen.add(lane)
                rows = view.engine.store.scan(lane, after=after, until_us=end_us, limit=ROWS_MAX)
                yield from (row.at_us for row in rows.jobs if not row.is_claimed())
