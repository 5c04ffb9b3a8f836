"""The usage of limits, for people: which workers hold permits, and which wait for some."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

from dueline.core.durations import span_text
from dueline.core.engine import Engine
from dueline.core.lane import Lane, limits_of
from dueline.core.limit_names import semaphore_of
from dueline.core.store import Records
from dueline.limits import rate, semaphore
from dueline.limits.rate import Rate
from dueline.limits.semaphore import CAPACITY_DEFAULT, Hold, Permits, Wait


class LimitUsage(NamedTuple):
    """The usage of a limit at one time.

    is_set: whether the capacity of its semaphore was set. holders, waiting: by worker, those that
    hold or wait now. closed_us: until when a handler has suspended it; 0: it is open.
    """

    name: str
    capacity: int
    is_set: bool
    holders: Mapping[str, Hold]
    waiting: Mapping[str, Wait]
    closed_us: int = 0

    @property
    def held(self) -> int:
        """Number of permits that are held."""
        return sum(holder.count for holder in self.holders.values())

    @property
    def is_full(self) -> bool:
        """Whether no permit is available."""
        return self.held >= self.capacity or self.closed_us > 0

    @property
    def is_busy(self) -> bool:
        """Whether jobs have to wait for permits, also where some were just released."""
        return self.is_full or bool(self.waiting)


def usage_of(engine: Engine, name: str) -> LimitUsage:
    """Read the usage of one limit."""
    permits, _ = semaphore.read(engine.store, name)
    now_us = engine.time.earliest_us()
    return _use(name, permits, semaphore.capacities(engine.store), now_us)


def usages_of(engine: Engine, name: str) -> list[LimitUsage]:
    """Read the usage of all limits of a semaphore that are held, waited for or suspended."""
    capacities = semaphore.capacities(engine.store)
    found = semaphore.in_use(engine.store, name)
    now_us = engine.time.earliest_us()
    uses = [_use(limit, permits, capacities, now_us) for limit, permits in found.items()]
    return [use for use in uses if use.holders or use.waiting or use.closed_us]


def semaphores(engine: Engine) -> Mapping[str, int | None]:
    """Return all semaphores with the capacity that was set, or None where jobs only name one."""
    found: dict[str, int | None] = {
        semaphore_of(limit): None
        for queue in engine.catalog.names()
        for lane in engine.lanes_of(queue)
        for limit in limits_of(lane)
    }
    known = rate.rates(engine.store)
    found = {name: None for name in found if name not in known}
    return dict(sorted({**found, **semaphore.capacities(engine.store)}.items()))


class ExhaustedRate(NamedTuple):
    """A rate that allows no start now. next_us: when at least one job may start."""

    name: str
    rate: Rate
    next_us: int


def look(engine: Engine, names: Iterable[str]) -> tuple[list[ExhaustedRate], list[LimitUsage]]:
    """Read limits: the rates that allow nothing now, and the usage of all semaphores."""
    now_us = engine.time.earliest_us()
    rates, capacities = rate.rates(engine.store), semaphore.capacities(engine.store)
    slow: list[ExhaustedRate] = []
    uses: list[LimitUsage] = []
    for name in names:
        one = rates.get(semaphore_of(name))
        if one is None:
            permits, _ = semaphore.read(engine.store, name)
            uses.append(_use(name, permits, capacities, now_us))
        elif found := _metered(engine, name, one, now_us):
            slow.append(found)
    return slow, uses


def _metered(engine: Engine, name: str, one: Rate, now_us: int) -> ExhaustedRate | None:
    """Read a rate; None: a job may start now."""
    meter, _ = rate.read(engine.store, name)
    if rate.left(meter, one, now_us) > 0:
        return None
    return ExhaustedRate(name, one, rate.next_us(meter, one, now_us))


def rate_text(one: Rate) -> str:
    """Format a rate for people."""
    burst = f", {one.burst} at once" if one.burst else ""
    return f"{one.count} in {span_text(one.per_us)}{burst}"


class RateUsage(NamedTuple):
    """What a rate still allows for one key, or for the rate itself.

    left: starts that are allowed now. next_us: when at least one is. closed_us: until when a
    handler has suspended it; 0: it is open.
    """

    name: str
    left: int
    next_us: int
    closed_us: int


def rate_usages_of(engine: Engine, name: str, one: Rate, *, most: int) -> list[RateUsage]:
    """Read what is left of a rate, for up to `most` keys that were used lately."""
    now_us = engine.time.earliest_us()
    return [
        RateUsage(
            key,
            rate.left(meter, one, now_us),
            rate.next_us(meter, one, now_us),
            meter.closed_us if meter.closed_us > now_us else 0,
        )
        for key, meter in islice(rate.meters(engine.store, name), most)
    ]


class BusyLimits:
    """The limits that make lanes wait; each semaphore and each rate is read once."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._uses: dict[str, Mapping[str, LimitUsage]] = {}
        self._rates: Mapping[str, Rate] | None = None
        self._slow: dict[str, bool] = {}
        self._now_us = engine.time.earliest_us()

    def has(self, lane: Lane) -> bool:
        """Return whether a limit of a lane is busy."""
        return any(map(self._is_busy, limits_of(lane)))

    def _is_busy(self, name: str) -> bool:
        key = semaphore_of(name)
        if self._rates is None:
            self._rates = rate.rates(self._engine.store)
        one = self._rates.get(key)
        if one is not None:
            if name not in self._slow:
                self._slow[name] = _metered(self._engine, name, one, self._now_us) is not None
            return self._slow[name]
        if key not in self._uses:
            uses: Sequence[LimitUsage] = [
                usage_of(self._engine, key),
                *usages_of(self._engine, key),
            ]
            self._uses[key] = {use.name: use for use in uses}
        known = self._uses[key]
        return known[name].is_busy if name in known else known[key].capacity == 0


def _use(name: str, permits: Permits, capacities: Mapping[str, int], now_us: int) -> LimitUsage:
    """Return the usage at the earliest that the time can be: as for workers, none expires early."""
    semaphore_name = semaphore_of(name)
    return LimitUsage(
        name,
        capacities.get(semaphore_name, CAPACITY_DEFAULT),
        semaphore_name in capacities,
        {who: one for who, one in sorted(permits.holders.items()) if one.until_us > now_us},
        {who: one for who, one in sorted(permits.waiting.items()) if one.until_us > now_us},
        permits.closed_us if permits.closed_us > now_us else 0,
    )


def declared_limits(records: Records) -> frozenset[str]:
    """Return the names of all semaphores and rates that were set."""
    return frozenset((*semaphore.capacities(records), *rate.rates(records)))
