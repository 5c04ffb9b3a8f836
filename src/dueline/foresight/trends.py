"""What a store did in the last hour, day and week, in steps that the maintenance leader records.

Minutes are kept for an hour, and merged into longer steps. A period in which no leader recorded
anything has no steps, so that readers can show the gap.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Final, NamedTuple

from dueline.coordination import notes
from dueline.coordination.run_times import Histogram, add, middle_of
from dueline.coordination.worker_registry import Presence, present
from dueline.core.clock import DAY_US, SECOND_US
from dueline.core.codec import encode
from dueline.core.engine import Engine
from dueline.core.maintenance import MaintenanceTask, StepResult
from dueline.core.store import Put, Records
from dueline.foresight.rates import Counted, plus
from dueline.jobs.counts import count

EVERY_US: Final = 60 * SECOND_US
KIND: Final = "trends"
TASKS: Final = "tasks"
STARTS: Final = "starts"
QUEUES_A_STEP: Final = 20

SCAN_MAX: Final = 2_000
"""Maximum number of jobs of one queue that are counted for a step."""

GAP_US: Final = 3 * EVERY_US
"""What was counted over more than this was counted by another leader, too."""

STARTS_MAX: Final = 200
TASKS_MAX: Final = 200
"""Maximum numbers of starts of workers, and of tasks, that are kept."""

NEW_TASKS_MAX: Final = 20
"""Maximum number of new tasks of a start that are kept."""

TASK_SLOT_US: Final = 1800 * SECOND_US
TASK_SLOTS: Final = 48
TASKS_EVERY_US: Final = 300 * SECOND_US
"""Attempts by task are kept for a day, in slots; they are written this often."""


class Range(NamedTuple):
    """A period that is shown: its steps, and how many there are."""

    step_us: int
    steps: int


RANGES: Final[Mapping[str, Range]] = {
    "1h": Range(EVERY_US, 60),
    "24h": Range(900 * SECOND_US, 96),
    "7d": Range(7200 * SECOND_US, 84),
}


class TrendStep(NamedTuple):
    """What happened in one step.

    Attributes:
      at_us: When the step began.
      span_us: For how long of it attempts were counted.
      ended, failed: Attempts that ended, and those of them that failed.
      ready: The most ready jobs.
      dead: Dead-letter jobs at its end.
      is_capped: There were more jobs than were counted.
      latencies: First attempts by the step of their start latency.
    """

    at_us: int
    span_us: int
    ended: int
    failed: int
    ready: int
    dead: int
    is_capped: bool
    latencies: Histogram

    def latency_us(self, percent: int) -> int | None:
        """Return a percentile of the start latency; None without a first attempt."""
        return percentile(self.latencies, percent)


class WorkerStart(NamedTuple):
    """Workers that started in one minute: their number, version and the tasks that are new."""

    at_us: int
    workers: int
    version: str
    new_tasks: tuple[str, ...] = ()


TaskSlots = dict[str, dict[int, tuple[int, int]]]
"""Attempts of tasks that ended and failed, by task and by the number of a slot."""


@dataclass(slots=True)
class _Depth:
    """The jobs of all queues that were counted so far."""

    ready: int = 0
    dead: int = 0
    is_capped: bool = False


@dataclass(slots=True)
class TrendRecorder:
    """Collects what happens in a minute, and writes it.

    `counted` is called with what workers counted, some times in a minute, and `step` once.
    """

    _more: Counted = field(default_factory=Counted)
    _tasks: dict[tuple[str, int], tuple[int, int]] = field(default_factory=dict)
    _counted_us: int = 0
    _began_us: int = 0
    _tasks_us: int = 0
    _depth: _Depth = field(default_factory=_Depth)

    def counted(self, by_queue: Mapping[str, Counted], now_us: int) -> None:
        """Add what workers counted since the last call."""
        is_known = now_us - self._counted_us <= GAP_US
        self._counted_us = now_us
        if not is_known:
            self._more, self._began_us = Counted(), now_us
            return
        slot = now_us // TASK_SLOT_US
        for queue in by_queue.values():
            add(self._more.latencies, queue.latencies)
            for task, number in queue.ended.items():
                failed = queue.failed.get(task, 0)
                plus(self._more.ended, task, number)
                plus(self._more.failed, task, failed)
                before = self._tasks.get((task, slot), (0, 0))
                self._tasks[task, slot] = before[0] + number, before[1] + failed

    def step(self, engine: Engine, after: str | None) -> StepResult:
        """Count the jobs of some queues; after the last ones, write the minute."""
        if after is None:
            self._depth = _Depth()
        workers = present(engine.store)
        names = engine.catalog.names_after(after, QUEUES_A_STEP)
        for name in names:
            counts = count(engine, name, workers, most=SCAN_MAX)
            self._depth.ready += counts.ready
            self._depth.dead += counts.dead
            self._depth.is_capped |= counts.is_capped
        if len(names) == QUEUES_A_STEP:
            return StepResult(after=names[-1])
        now_us = engine.time.latest_us()
        puts = [*self._steps(engine, now_us), *_starts(engine, workers, now_us)]
        if self._tasks and now_us - self._tasks_us >= TASKS_EVERY_US:
            puts.append(self._task_slots(engine, now_us))
        self._more, self._began_us = Counted(), now_us
        return StepResult(len(puts), puts=puts)

    def _steps(self, engine: Engine, now_us: int) -> Iterable[Put]:
        """Return the writes of this minute, and of longer steps that are over with it."""
        more, depth = self._more, self._depth
        minutes = _kept(engine.store, "1h")
        ended_now = sum(more.ended.values())
        if not (minutes or ended_now or depth.ready or depth.dead):
            return  # an empty store costs nothing
        taken = TrendStep(
            now_us - now_us % EVERY_US,
            min(GAP_US, max(1, now_us - self._began_us)),
            ended_now,
            sum(more.failed.values()),
            depth.ready,
            depth.dead,
            depth.is_capped,
            more.latencies,
        )
        steps = [*minutes, taken]
        yield _put(engine, "1h", steps, now_us)
        for name in ("24h", "7d"):
            step_us = RANGES[name].step_us
            coarse = _kept(engine.store, name)
            last_us = coarse[-1].at_us if coarse else 0
            ended = [
                step
                for step in merged(steps, step_us)
                if last_us < step.at_us < now_us - now_us % step_us
            ]
            if not ended:
                return
            steps = [*coarse, *ended]
            yield _put(engine, name, steps, now_us)

    def _task_slots(self, engine: Engine, now_us: int) -> Put:
        tasks = task_slots(engine.store)
        for (task, slot), (ended, failed) in self._tasks.items():
            slots = tasks.setdefault(task, {})
            before = slots.get(slot, (0, 0))
            slots[slot] = before[0] + ended, before[1] + failed
        first = now_us // TASK_SLOT_US - TASK_SLOTS
        kept = {
            task: {slot: counts for slot, counts in slots.items() if slot > first}
            for task, slots in tasks.items()
            if max(slots) > first
        }
        if len(kept) > TASKS_MAX:
            latest = sorted(kept, key=lambda task: -max(kept[task]))[:TASKS_MAX]
            kept = {task: kept[task] for task in latest}
        self._tasks, self._tasks_us = {}, now_us
        expires_us = now_us + DAY_US
        return notes.put(KIND, TASKS, encode(kept), engine.ids.token(), expires_us=expires_us)


def task(recorder: TrendRecorder) -> MaintenanceTask:
    """Return the maintenance task that records what the store did."""
    return MaintenanceTask("trends", EVERY_US, recorder.step)


def trend_of(records: Records, name: str) -> Sequence[TrendStep]:
    """Return the steps of a range, the oldest first; the last one is not over.

    Args:
        records: The store.
        name: One of RANGES.
    """
    steps = list(_kept(records, "1h"))
    for coarser in ("24h", "7d"):
        if name == "1h":
            break
        kept = _kept(records, coarser)
        last_us = kept[-1].at_us if kept else 0
        rest = [step for step in merged(steps, RANGES[coarser].step_us) if step.at_us > last_us]
        steps = [*kept, *rest]
        if coarser == name:
            break
    return steps


def task_slots(records: Records) -> TaskSlots:
    """Return the attempts of tasks in the last day."""
    return notes.value(records, KIND, TASKS, TaskSlots) or {}


def worker_starts(records: Records) -> Sequence[WorkerStart]:
    """Return when workers started in the last week, the oldest first."""
    return notes.value(records, KIND, STARTS, list[WorkerStart]) or []


def merged(steps: Sequence[TrendStep], step_us: int) -> Sequence[TrendStep]:
    """Merge steps, in the order of time, into longer ones."""
    return [
        _sum_of(at_us, list(group))
        for at_us, group in groupby(steps, key=lambda step: step.at_us - step.at_us % step_us)
    ]


def percentile(times: Mapping[int, int], percent: int) -> int | None:
    """Return the duration that `percent` of a histogram do not exceed; None if it is empty."""
    left = -(-sum(times.values()) * percent // 100)
    for step in sorted(times):
        left -= times[step]
        if left <= 0:
            return middle_of(step)
    return None


def _sum_of(at_us: int, steps: Sequence[TrendStep]) -> TrendStep:
    latencies: Histogram = {}
    for step in steps:
        add(latencies, step.latencies)
    return TrendStep(
        at_us,
        sum(step.span_us for step in steps),
        sum(step.ended for step in steps),
        sum(step.failed for step in steps),
        max(step.ready for step in steps),
        steps[-1].dead,
        any(step.is_capped for step in steps),
        latencies,
    )


def _kept(records: Records, name: str) -> Sequence[TrendStep]:
    return notes.value(records, KIND, name, list[TrendStep]) or []


def _put(engine: Engine, name: str, steps: Sequence[TrendStep], now_us: int) -> Put:
    step_us, most = RANGES[name]
    kept = [step for step in steps if step.at_us > now_us - (most + 1) * step_us][-most:]
    expires_us = now_us + 2 * step_us * most
    return notes.put(KIND, name, encode(kept), engine.ids.token(), expires_us=expires_us)


def _starts(engine: Engine, workers: Sequence[Presence], now_us: int) -> Iterable[Put]:
    """Return the write of the workers that have started since the last one."""
    before = {start.at_us: start for start in worker_starts(engine.store)}
    last_us = max(before, default=0)
    ordered = sorted(workers, key=_minute_of)
    known: set[str] = set()
    starts = dict(before)
    for at_us, group in groupby(ordered, key=_minute_of):
        started = list(group)
        tasks = {name for worker in started for name in worker.tasks}
        new = sorted(tasks - known)[:NEW_TASKS_MAX] if known else ()
        known |= tasks
        if at_us >= last_us and len(started) > (before[at_us].workers if at_us in before else 0):
            starts[at_us] = WorkerStart(at_us, len(started), started[-1].version, tuple(new))
    if starts != before:
        week_us = RANGES["7d"].step_us * RANGES["7d"].steps
        kept = [start for at_us, start in starts.items() if at_us > now_us - week_us][-STARTS_MAX:]
        expires_us = now_us + week_us
        yield notes.put(KIND, STARTS, encode(kept), engine.ids.token(), expires_us=expires_us)


def _minute_of(worker: Presence) -> int:
    return worker.started_us - worker.started_us % EVERY_US
