"""Tasks as people read them: how often each runs, how much of it fails, and how long it takes."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import exp

from dueline.admin.dead_letters import DeadGroup
from dueline.coordination.run_times import Histogram, add
from dueline.coordination.worker_registry import Presence
from dueline.core.attempt import Attempt, read_epitaph
from dueline.core.clock import SECOND_US
from dueline.core.engine import Engine
from dueline.foresight.rates import WINDOWS_US, QueueRates, Sums, rates_of
from dueline.foresight.run_times import run_times
from dueline.foresight.trends import TASK_SLOT_US, TASK_SLOTS, percentile, task_slots

_FEW_MINUTES = 1
_SEEN_MIN = 0.5
"""Attempts of the last minutes below which no share of failures is known."""


@dataclass(frozen=True, slots=True)
class LastError:
    """The last known failure of a task: its first line, when it was, and its job."""

    text: str
    at_us: int
    job: str


@dataclass(frozen=True, slots=True)
class TaskSummary:
    """A task.

    Attributes:
      queues: Queues in which it ran in the last days.
      workers: Number of live workers that know it.
      per_s: Attempts that end in a second, in the last minutes.
      failing: Share of the attempts of the last minutes that failed; None without any.
      ended, failed: Attempts of the last day.
      p95_us: Run time that 95 % of the attempts do not exceed; None if none is known.
      slots: Attempts that ended and failed, in each half hour of the last day.
      error: Its last failure; None if none is known.
    """

    name: str
    queues: Sequence[str]
    workers: int
    per_s: float
    failing: float | None
    ended: int
    failed: int
    p95_us: int | None
    slots: Sequence[tuple[int, int]]
    error: LastError | None

    @property
    def share(self) -> float | None:
        """The share of the attempts of the last day that failed; None without any."""
        return self.failed / self.ended if self.ended else None


def task_summaries(
    engine: Engine,
    workers: Sequence[Presence],
    failures: Mapping[str, Attempt],
    dead: Iterable[DeadGroup],
) -> Sequence[TaskSummary]:
    """Return the tasks that ran in the last days, failed or are known to live workers, by name.

    Args:
        engine: The engine.
        workers: The live workers.
        failures: The last failed attempts that were read.
        dead: The dead-letter jobs.
    """
    now_us = engine.time.latest_us()
    by_queue = {name: rates for name in engine.catalog.names() if (rates := rates_of(engine, name))}
    slots = task_slots(engine.store)
    runs: dict[str, Histogram] = defaultdict(dict)
    for (_, task), times in run_times(engine.store).tasks.items():
        add(runs[task], times)
    errors = _last_errors(failures, dead)
    known = {task for worker in workers for task in worker.tasks}
    ran = {task for rates in by_queue.values() for task in rates.ended}
    first = now_us // TASK_SLOT_US - TASK_SLOTS + 1
    summaries = []
    for task in sorted(known | ran | set(slots) | set(runs) | set(errors)):
        queues = [name for name, rates in by_queue.items() if task in rates.ended]
        ended, failed = (
            sum(_few_minutes(sums.get(task), rates, now_us) for rates, sums in pairs)
            for pairs in (
                [(by_queue[name], by_queue[name].ended) for name in queues],
                [(by_queue[name], by_queue[name].failed) for name in queues],
            )
        )
        mine = slots.get(task, {})
        day = [mine.get(first + place, (0, 0)) for place in range(TASK_SLOTS)]
        summaries.append(
            TaskSummary(
                task,
                queues,
                sum(task in worker.tasks for worker in workers),
                ended * SECOND_US / WINDOWS_US[_FEW_MINUTES],
                min(1.0, failed / ended) if ended >= _SEEN_MIN else None,
                sum(number for number, _ in day),
                sum(number for _, number in day),
                percentile(runs.get(task, {}), 95),
                day,
                errors.get(task),
            )
        )
    return summaries


def _few_minutes(sums: Sums | None, rates: QueueRates, now_us: int) -> float:
    """Return how many events of the last minutes count now, as if counting had begun earlier."""
    if sums is None:
        return 0.0
    window_us = WINDOWS_US[_FEW_MINUTES]
    counted_us = max(WINDOWS_US[0], rates.at_us - rates.since_us)
    return sums.after(now_us - rates.at_us, 0).minutes / (1 - exp(-counted_us / window_us))


def _last_errors(
    failures: Mapping[str, Attempt], dead: Iterable[DeadGroup]
) -> Mapping[str, LastError]:
    errors = {
        task: LastError(read_epitaph(last.error)[0].partition("\n")[0], last.ended_us, last.job)
        for task, last in failures.items()
    }
    for group in dead:
        known = errors.get(group.task)
        if known is None or known.at_us < group.last_us:
            errors[group.task] = LastError(group.error, group.last_us, group.example)
    return errors
