"""Runs recorded periods with settings: one task of a simulation, for any engine."""

from bisect import bisect_left
from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

from dueline.foresight.calibration import learned
from dueline.foresight.record import Record
from dueline.foresight.scenario import Changes, Rules, scenario_of
from dueline.foresight.simulation import Simulated, simulate
from dueline.foresight.summary import Outcome, outcome_of

ENDLESS_US: Final = 1 << 62


class Task(NamedTuple):
    """A run: what really happened, or a simulation of it with a setting.

    Attributes:
      changes: The setting; None for what really happened.
      since_us, until_us: Which jobs, by when they were ready.
    """

    changes: Changes | None
    since_us: int = 0
    until_us: int = ENDLESS_US


class Simulator(Protocol):
    """Runs tasks on some engine."""

    def run(self, tasks: Sequence[Task]) -> list[Outcome]:
        """Return the outcome of each task."""
        ...


def outcomes(record: Record, rules: Rules, tasks: Sequence[Task]) -> list[Outcome]:
    """Return the outcome of each task; what is learned from the record is used by all."""
    fleet, overheads = learned(record, rules.rates)
    per_task = []
    for task in tasks:
        part = part_of(record, task.since_us, task.until_us)
        if not part.kind:
            per_task.append(Outcome([]))
        elif task.changes is None:
            times = Simulated(part.ready_us, part.started_us)
            per_task.append(outcome_of(part, times, fleet, part.bounds_us))
        else:
            scenario = scenario_of(task.changes, rules, fleet, overheads)
            times = simulate(part, scenario)
            per_task.append(outcome_of(part, times, scenario.workers, part.bounds_us))
    return per_task


def part_of(record: Record, since_us: int, until_us: int) -> Record:
    """Return the jobs that were ready in a period."""
    if (since_us, until_us) == (0, ENDLESS_US):
        return record
    firsts = [place for place, nth in enumerate(record.nth) if nth == 1]
    key = record.ready_us.__getitem__
    low, high = (bisect_left(firsts, at_us, key=key) for at_us in (since_us, until_us))
    if (low, high) == (0, len(firsts)):
        return record
    begin = firsts[low] if low < len(firsts) else len(record.nth)
    end = firsts[high] if high < len(firsts) else len(record.nth)
    columns = {
        name: column[begin:end]
        for name, column in record._asdict().items()
        if name not in ("kinds", "workers")
    }
    return record._replace(**columns)
