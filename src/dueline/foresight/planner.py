"""How many workers keep a target, and which limits stand in the way.

The number is found on the earlier part of the history, and checked on the last week of it, or on
the last third of a shorter one, which the search has not seen.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from math import ceil
from typing import Final, NamedTuple

from dueline.core.clock import DAY_US
from dueline.foresight.replay import Simulator, Task
from dueline.foresight.scenario import Changes
from dueline.foresight.summary import Latencies, Outcome
from dueline.foresight.target import Target

WEEK_US: Final = 7 * DAY_US
HELD_OUT: Final = 3
"""The part of a short history that is held out: 1/3."""

WORKERS_MAX: Final = 1_000
REFINED_MAX: Final = 6
FACTORS: Final = (2, 4, 8, 16, 32)
"""What capacities are multiplied by, to find whether a limit stands in the way."""

_HOUR_MINUTES: Final = 60
_WEEK_HOURS: Final = 7 * 24
_MONDAY_HOUR: Final = 3 * 24
"""Hours from a Monday to the beginning of the epoch, a Thursday."""


class Point(NamedTuple):
    """What a number of workers achieves."""

    workers: int
    found: Latencies
    utilisation: float
    meets: bool


class Hour(NamedTuple):
    """The load of an hour of the week, Monday 00:00 UTC being 0. starts: of one such hour."""

    hour: int
    starts: float
    found: Latencies


@dataclass(frozen=True, slots=True)
class Asked:
    """What a plan is for.

    Attributes:
      target: The target.
      queues: Queues that have to keep it; all if empty.
      slots: Slots of each worker; None for as many as they had.
      capacities: Of the semaphores that jobs of the queues have.
    """

    target: Target
    queues: Sequence[str] = ()
    slots: int | None = None
    capacities: Mapping[str, int] = field(default_factory=dict)


class Plan(NamedTuple):
    """A recommendation with its evidence.

    Attributes:
      workers: How many; None if no number keeps the target.
      slots: Slots of each.
      capacities: Semaphores that need more permits, and how many.
      curve: What other numbers of workers achieve on the part that was searched.
      held_out: What the recommended number achieves on the part that was held out.
      split_us: When that part begins.
      real, replay: What really happened, and a replay of it: the error of the simulation.
      hours: The load by hour of the week.
    """

    workers: int | None
    slots: int
    capacities: Mapping[str, int]
    curve: Sequence[Point]
    held_out: Point | None
    split_us: int
    real: Latencies
    replay: Latencies
    hours: Sequence[Hour]


class _Search:
    """Simulates numbers of workers on parts of the history, each once."""

    def __init__(self, simulator: Simulator, asked: Asked, bounds_us: tuple[int, int]) -> None:
        self._simulator = simulator
        self._asked = asked
        self._bounds_us = bounds_us
        self.capacities: Mapping[str, int] = {}
        self.points: dict[int, Point] = {}

    def try_all(self, counts: Sequence[int]) -> None:
        """Simulate numbers of workers side by side."""
        new = [count for count in dict.fromkeys(counts) if count not in self.points]
        tasks = [Task(self._changes(count), *self._bounds_us) for count in new]
        for count, outcome in zip(new, self._simulator.run(tasks) if new else (), strict=True):
            self.points[count] = self._point(count, outcome)

    def try_capacities(self, workers: int, trials: Sequence[Mapping[str, int]]) -> list[bool]:
        """Return whether each of some capacities lets a number of workers keep the target."""
        tasks = [
            Task(Changes("", workers, self._asked.slots, capacities=capacities), *self._bounds_us)
            for capacities in trials
        ]
        return [self._point(workers, outcome).meets for outcome in self._simulator.run(tasks)]

    def _changes(self, count: int) -> Changes:
        return Changes(f"{count} workers", count, self._asked.slots, capacities=self.capacities)

    def _point(self, count: int, outcome: Outcome) -> Point:
        mine = outcome.of_queues(self._asked.queues)
        target = self._asked.target
        return Point(count, mine.latencies(target), outcome.utilisation, mine.meets(target))

    def least(self) -> int | None:
        """Return the least number that keeps the target with every larger one that was tried."""
        best = None
        for count in sorted(self.points, reverse=True):
            if not self.points[count].meets:
                break
            best = count
        return best


def plan(simulator: Simulator, asked: Asked) -> Plan:
    """Recommend workers and limits for a target.

    Args:
        simulator: Runs simulations of the history.
        asked: The target, and for what.
    """
    real, replay = simulator.run([Task(None), Task(Changes())])
    split_us, slots = split_of(real.since_us, real.until_us), asked.slots or real.slots
    search = _Search(simulator, asked, (0, split_us))
    busy = real.busy_us / max(1, real.until_us - real.since_us)
    floor = max(1, ceil(busy / slots))
    most = min(WORKERS_MAX, 16 * floor)
    search.try_all([most])
    capacities: Mapping[str, int] = {}
    if not search.points[most].meets and asked.capacities:
        capacities = _raised(search, most, asked.capacities)
        if capacities:
            search.capacities, search.points = capacities, {}
    search.try_all(sorted({floor, floor + 1, floor + 2, ceil(1.5 * floor), 2 * floor, 3 * floor,
                           4 * floor, 8 * floor, most}))  # fmt: skip
    _refine(search)
    workers = search.least()
    held_out = None
    if workers is not None:
        workers, held_out = _checked(simulator, asked, capacities, workers, split_us)
        search.try_all([workers, *([workers - 1] if workers > 1 else ())])
    mine = real.of_queues(asked.queues)
    return Plan(
        workers, slots, capacities, [search.points[count] for count in sorted(search.points)],
        held_out, split_us, mine.latencies(asked.target),
        replay.of_queues(asked.queues).latencies(asked.target), hours_of(mine, asked.target),
    )  # fmt: skip


def split_of(since_us: int, until_us: int) -> int:
    """Return when the part of a history begins that is held out."""
    length_us = until_us - since_us
    return until_us - (WEEK_US if length_us >= 2 * WEEK_US else length_us // HELD_OUT)


def _refine(search: _Search) -> None:
    """Try numbers between the largest that fails and the least that does not."""
    while (least := search.least()) is not None:
        below = max((count for count in search.points if count < least), default=0)
        between = range(below + 1, least)
        if not between:
            return
        step = ceil(len(between) / REFINED_MAX)
        search.try_all([*between[::step]])


def _raised(search: _Search, workers: int, capacities: Mapping[str, int]) -> Mapping[str, int]:
    """Return the semaphores that need more permits for the target; none if that does not help."""
    raised = [
        {name: max(1, capacity) * factor for name, capacity in capacities.items()}
        for factor in FACTORS
    ]
    good = [
        trial
        for trial, meets in zip(raised, search.try_capacities(workers, raised), strict=True)
        if meets
    ]
    if not good:
        return {}
    enough = dict(good[0])
    for name, low in capacities.items():
        least, most = low, enough[name]
        while least < most:
            middle = (least + most) // 2
            (meets,) = search.try_capacities(workers, [{**enough, name: middle}])
            least, most = (least, middle) if meets else (middle + 1, most)
        enough[name] = most
    return {name: count for name, count in enough.items() if count != capacities[name]}


def _checked(
    simulator: Simulator, asked: Asked, capacities: Mapping[str, int], workers: int, split_us: int
) -> tuple[int, Point]:
    """Return the least number from `workers` on that keeps the target where it was held out."""
    counts = sorted({workers, workers + 1, workers + 2, ceil(1.5 * workers), 2 * workers})
    held = _Search(simulator, asked, (split_us, 1 << 62))
    held.capacities = capacities
    held.try_all(counts)
    chosen = next((count for count in counts if held.points[count].meets), workers)
    return chosen, held.points[chosen]


def hours_of(outcome: Outcome, target: Target) -> list[Hour]:
    """Return the load and the latencies by hour of the week."""
    weeks: dict[int, set[int]] = {}
    for _, _, minute, _ in outcome.cells:
        hour = minute // _HOUR_MINUTES + _MONDAY_HOUR
        weeks.setdefault(hour % _WEEK_HOURS, set()).add(hour // _WEEK_HOURS)
    by_hour = outcome.by(
        lambda cell: ((cell[2] // _HOUR_MINUTES + _MONDAY_HOUR) % _WEEK_HOURS,), target
    )
    return [
        Hour(hour, latencies.starts / len(weeks[hour]), latencies)
        for (hour,), latencies in by_hour.items()
        if isinstance(hour, int)
    ]


def hour_text(hour: int) -> str:
    """Return an hour of the week as text: Mon 09:00."""
    monday = datetime(2024, 1, 1, tzinfo=UTC).timestamp()
    return datetime.fromtimestamp(monday + 3600 * hour, UTC).strftime("%a %H:%M")
