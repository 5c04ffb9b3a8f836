"""What limits allow now, for people: who holds permits, and who waits for some."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from dueline.lane import Lane, limits_of
from dueline.queue import Queues
from dueline.recipes import semaphore
from dueline.recipes.semaphore import CAPACITY_DEFAULT, Hold, Permits, Wait, semaphore_of


class Use(NamedTuple):
    """A limit at an instant.

    is_set: somebody has set the capacity of its semaphore. holders, waiting: by worker, those
    that do now.
    """

    name: str
    capacity: int
    is_set: bool
    holders: Mapping[str, Hold]
    waiting: Mapping[str, Wait]

    @property
    def held(self) -> int:
        """How many permits are held."""
        return sum(one.count for one in self.holders.values())

    @property
    def is_full(self) -> bool:
        """Whether no permit is left."""
        return self.held >= self.capacity

    @property
    def is_busy(self) -> bool:
        """Whether jobs have to wait for permits; some that were just given back change nothing."""
        return self.is_full or bool(self.waiting)


def use_of(queues: Queues, name: str) -> Use:
    """Look at one limit."""
    permits, _ = semaphore.read(queues.store, name)
    return _use(queues, name, permits, semaphore.capacities(queues.store))


def uses_of(queues: Queues, name: str) -> list[Use]:
    """Look at all limits of a semaphore of which permits are held, or waited for."""
    capacities = semaphore.capacities(queues.store)
    found = semaphore.in_use(queues.store, name)
    uses = [_use(queues, limit, permits, capacities) for limit, permits in found.items()]
    return [use for use in uses if use.holders or use.waiting]


def semaphores(queues: Queues) -> Mapping[str, int | None]:
    """Name all semaphores: with the capacity that was set, or None where jobs just name one."""
    found: dict[str, int | None] = {
        semaphore_of(limit): None
        for queue in queues.catalog.names()
        for lane in queues.lanes_of(queue)
        for limit in limits_of(lane)
    }
    return dict(sorted({**found, **semaphore.capacities(queues.store)}.items()))


class Waiting:
    """Tells which lanes wait for permits, so that nobody is late with them.

    Each semaphore is read once.
    """

    def __init__(self, queues: Queues) -> None:
        """Take the engine; reads nothing yet."""
        self._queues = queues
        self._uses: dict[str, Mapping[str, Use]] = {}

    def has(self, lane: Lane) -> bool:
        """Tell whether some limit of a lane is busy."""
        return any(self._is_busy(name) for name in limits_of(lane))

    def _is_busy(self, name: str) -> bool:
        key = semaphore_of(name)
        if key not in self._uses:
            uses: Sequence[Use] = [use_of(self._queues, key), *uses_of(self._queues, key)]
            self._uses[key] = {use.name: use for use in uses}
        known = self._uses[key]
        return known[name].is_busy if name in known else known[key].capacity == 0


def _use(queues: Queues, name: str, permits: Permits, capacities: Mapping[str, int]) -> Use:
    now_us = queues.time.earliest_us()  # as workers see it: nobody's permits lapse early
    semaphore_name = semaphore_of(name)
    return Use(
        name,
        capacities.get(semaphore_name, CAPACITY_DEFAULT),
        semaphore_name in capacities,
        {who: one for who, one in sorted(permits.holders.items()) if one.until_us > now_us},
        {who: one for who, one in sorted(permits.waiting.items()) if one.until_us > now_us},
    )
