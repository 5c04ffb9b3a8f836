"""The usage of limits, for people: which workers hold permits, and which wait for some."""

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Final, NamedTuple

from dueline.core.engine import Engine
from dueline.core.lane import Lane, limits_of
from dueline.core.limit_costs import NO_COSTS
from dueline.core.limit_names import has_key, semaphore_of
from dueline.core.store import Records
from dueline.limits import rate, semaphore
from dueline.limits.rate import Rate
from dueline.limits.semaphore import CAPACITY_DEFAULT, Hold, Permits, Semaphore, Wait

_DEFAULT: Final = Semaphore(CAPACITY_DEFAULT)


class LimitUsage(NamedTuple):
    """The usage of a limit at one time.

    is_set: whether the capacity of its semaphore was set. holders, waiting: by worker, those that
    hold or wait now. closed_us: until when a handler has suspended it; 0: it is open. setting: of
    its semaphore or key.
    """

    name: str
    capacity: int
    is_set: bool
    holders: Mapping[str, Hold]
    waiting: Mapping[str, Wait]
    closed_us: int = 0
    setting: Semaphore = _DEFAULT

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
    return _use(name, permits, semaphore.settings(engine.store), now_us)


def adaptive_text(setting: Semaphore, uses: Iterable[LimitUsage]) -> str:
    """Return the capacities of an adaptive semaphore for people: those in use, and the bounds."""
    now = sorted({use.capacity for use in uses} or {setting.capacity})
    text = str(now[0]) if len(now) == 1 else f"{now[0]} to {now[-1]}"
    return f"{text} at once (from {setting.least} to {setting.most})"


def usages_of(engine: Engine, name: str) -> list[LimitUsage]:
    """Read the usage of all limits of a semaphore that are held, waited for or suspended.

    Args: name: a semaphore, without the keys that have a capacity of their own; or such a key.
    """
    known = semaphore.settings(engine.store)
    held = semaphore.in_use(engine.store, name)
    now_us = engine.time.earliest_us()
    uses = [
        _use(limit, permits, known, now_us)
        for limit, permits in held.items()
        if limit == name or not (has_key(name) or limit in known)
    ]
    return [use for use in uses if use.holders or use.waiting or use.closed_us or use.setting.most]


def semaphores(engine: Engine) -> Mapping[str, Semaphore | None]:
    """Return all semaphores with what was set, or None where jobs only name one.

    Keys with a capacity of their own are semaphores here.
    """
    named: dict[str, Semaphore | None] = {
        semaphore_of(limit): None
        for queue in engine.catalog.names()
        for lane in engine.lanes_of(queue)
        for limit in limits_of(lane)
    }
    known = rate.rates(engine.store)
    named = {name: None for name in named if name not in known}
    return dict(sorted({**named, **semaphore.settings(engine.store)}.items()))


class ExhaustedRate(NamedTuple):
    """A rate that does not allow a job now.

    next_us: when enough is left. need: what the job takes. left: what there is.
    """

    name: str
    rate: Rate
    next_us: int
    need: int = 1
    left: int = 0


def look(
    engine: Engine, names: Iterable[str], costs: Mapping[str, int] = NO_COSTS
) -> tuple[list[ExhaustedRate], list[LimitUsage]]:
    """Read limits: the rates that do not allow a job now, and the usage of all semaphores.

    Args: costs: what the job takes of the limits of which it does not take one.
    """
    now_us = engine.time.earliest_us()
    rates, known = rate.rates(engine.store), semaphore.settings(engine.store)
    slow: list[ExhaustedRate] = []
    uses: list[LimitUsage] = []
    for name in names:
        setting = rate.rate_of(rates, name)
        if setting is None:
            permits, _ = semaphore.read(engine.store, name)
            uses.append(_use(name, permits, known, now_us))
        elif exhausted := _metered(engine, name, setting, now_us, costs.get(name, 1)):
            slow.append(exhausted)
    return slow, uses


def _metered(
    engine: Engine, name: str, setting: Rate, now_us: int, need: int = 1
) -> ExhaustedRate | None:
    """Read a rate; None: the job may start now."""
    meter, _ = rate.read(engine.store, name)
    left = rate.left(meter, setting, now_us)
    if left >= min(need, setting.most):
        return None
    return ExhaustedRate(name, setting, rate.next_us(meter, setting, now_us, need), need, left)


class RateUsage(NamedTuple):
    """What a rate still allows for one key, or for the rate itself.

    left: starts that are allowed now. next_us: when at least one is. closed_us: until when a
    handler has suspended it; 0: it is open.
    """

    name: str
    left: int
    next_us: int
    closed_us: int


def rate_usages_of(engine: Engine, name: str, setting: Rate, *, most: int) -> list[RateUsage]:
    """Read what is left of a rate, for up to `most` keys that were used lately."""
    now_us = engine.time.earliest_us()
    return [
        RateUsage(
            key,
            rate.left(meter, setting, now_us),
            rate.next_us(meter, setting, now_us),
            meter.closed_us if meter.closed_us > now_us else 0,
        )
        for key, meter in islice(rate.meters(engine.store, name), most)
    ]


class BusyLimits:
    """The limits that make lanes wait; each semaphore and each rate is read once."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._uses: dict[str, Mapping[str, LimitUsage]] = {}
        self._settings: Mapping[str, Semaphore] = {}
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
        setting = rate.rate_of(self._rates, name)
        if setting is not None:
            if name not in self._slow:
                self._slow[name] = _metered(self._engine, name, setting, self._now_us) is not None
            return self._slow[name]
        if key not in self._uses:
            known = semaphore.settings(self._engine.store)
            held = {key: Permits(), **semaphore.in_use(self._engine.store, key)}
            self._uses[key] = {
                limit: _use(limit, permits, known, self._now_us) for limit, permits in held.items()
            }
            self._settings = known
        uses = self._uses[key]
        if name in uses:
            return uses[name].is_busy
        return semaphore.setting_of(self._settings, name).capacity == 0


def _use(name: str, permits: Permits, known: Mapping[str, Semaphore], now_us: int) -> LimitUsage:
    """Return the usage at the earliest that the time can be: as for workers, none expires early."""
    setting = semaphore.setting_of(known, name)
    return LimitUsage(
        name,
        semaphore.capacity_now(permits, setting),
        name in known or semaphore_of(name) in known,
        {who: hold for who, hold in sorted(permits.holders.items()) if hold.until_us > now_us},
        {who: wait for who, wait in sorted(permits.waiting.items()) if wait.until_us > now_us},
        permits.closed_us if permits.closed_us > now_us else 0,
        setting,
    )


def declared_limits(records: Records) -> frozenset[str]:
    """Return the names of all semaphores and rates that were set."""
    return frozenset((*semaphore.capacities(records), *rate.rates(records)))
