"""What a worker takes from rate limits for the jobs that it claims."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Final, NamedTuple

from dueline.core.clock import SECOND_US
from dueline.core.engine import Engine
from dueline.core.errors import StoreCorrupt, StoreUnavailable
from dueline.core.job import Claim, Job
from dueline.core.lane import has_costs
from dueline.core.limit_costs import costs_of
from dueline.limits import rate, semaphore
from dueline.limits.rate import Meter, Rate
from dueline.limits.semaphore import PermitRequest

_ROUNDS_MAX: Final = 20

LATE_US_MIN: Final = SECOND_US // 2
"""A job starts at most half the period of its rate after the claim, or this long if longer."""


class MeterReading(NamedTuple):
    """A meter as it was read, after the return of what is not needed.

    left: how many may be taken. next_us: when at least one may be taken. now_us: when it was read.
    """

    meter: Meter
    version: bytes
    left: int
    next_us: int
    now_us: int


class _Taken(NamedTuple):
    """What was taken for a job of one rate, and when; after its start, since when it counts."""

    at_us: int
    units: int


class RateMeters:
    """One worker's share of rate limits; only its loop uses it.

    What was taken and not used is returned, as of the time when it was taken. If that fails, or the
    worker dies, it counts as used: a rate is never exceeded, and may be underused for one period
    (rule N5). The next take returns it in the same write, so that a lane in which nothing was due
    takes nothing from the lanes after it.
    """

    def __init__(self, engine: Engine, worker: str = "") -> None:
        self._engine = engine
        self._worker = worker
        self._taken_us: dict[str, int] = {}  # when it was last
        self._unused: dict[str, list[_Taken]] = {}
        self._moved: dict[str, list[tuple[int, int, int]]] = {}  # when taken, when started, count
        self._spent: dict[str, list[_Taken]] = {}  # how much more than was taken, at the start
        self._taken_for: dict[Claim, dict[str, _Taken]] = {}  # by limit
        self._running: dict[Claim, dict[str, _Taken]] = {}  # jobs with costs, by limit
        self.start_by_us: dict[Claim, int] = {}

    def read(self, name: str, setting: Rate) -> MeterReading:
        """Read a meter."""
        now_us = self._engine.time.earliest_us()
        meter, version = rate.read(self._engine.store, name)
        latest_us = self._engine.time.latest_us()
        for taken_us, count in self._unused.get(name, ()):
            meter = rate.after_returning(meter, setting, count, taken_us, latest_us)
        for taken_us, started_us, count in self._moved.get(name, ()):
            meter = rate.after_start(meter, setting, taken_us, started_us, count)
        for started_us, more in self._spent.get(name, ()):
            if more < 0:
                meter = rate.after_returning(meter, setting, -more, started_us, latest_us)
            else:
                meter = rate.after_taking(meter, setting, more, latest_us, earliest_us=now_us)
        left = rate.left(meter, setting, now_us)
        return MeterReading(meter, version, left, rate.next_us(meter, setting, now_us), now_us)

    def take(
        self,
        name: str,
        setting: Rate,
        reading: MeterReading,
        count: int,
        wish: PermitRequest | None = None,
    ) -> tuple[int, int]:
        """Take up to `count`; return how many, and when there is more.

        Args: wish: the request, whose wait is over.

        Raises: Unknown: they may be taken, and then count as used.
        """
        for _ in range(_ROUNDS_MAX):
            count = min(count, reading.left)
            if count <= 0:
                break
            now_us = self._engine.time.latest_us()  # as of the latest time that it can be
            least_us = self._engine.time.earliest_us()
            meter = rate.after_taking(reading.meter, setting, count, now_us, earliest_us=least_us)
            if wish and semaphore.is_turn_of(meter.waiting.get(self._worker), wish):
                waiting = semaphore.waits_without(meter.waiting, {self._worker}, least_us)
                meter = replace(meter, waiting=waiting)
            back = self._unused.pop(name, [])  # if the outcome is unknown, it counts as used
            later, more = self._moved.pop(name, []), self._spent.pop(name, [])
            if self._write(name, setting, reading.version, meter):
                self._taken_us[name] = now_us
                return count, reading.next_us
            self._unused[name], self._moved[name], self._spent[name] = back, later, more
            reading = self.read(name, setting)
        return 0, reading.next_us

    def wait(self, name: str, setting: Rate, reading: MeterReading, wish: PermitRequest) -> None:
        """Record that this worker waits for tokens; if that fails, the next request repeats it."""
        waiting = semaphore.waits_with(reading.meter.waiting, self._worker, wish, reading.now_us)
        if waiting is not None:
            meter, version = rate.read(self._engine.store, name)
            if version == reading.version:  # without what `read` corrected
                self._write(name, setting, version, replace(meter, waiting=waiting))

    def give_up(self, name: str, setting: Rate) -> None:
        """Remove the wait of this worker, if it has one."""
        meter, version = rate.read(self._engine.store, name)
        if self._worker in meter.waiting:
            now_us = self._engine.time.earliest_us()
            waiting = semaphore.waits_without(meter.waiting, {self._worker}, now_us)
            self._write(name, setting, version, replace(meter, waiting=waiting))

    def unused(self, name: str, count: int) -> None:
        """Note that `count` of what was taken last is not needed."""
        if count > 0 and name in self._taken_us:
            self._unused.setdefault(name, []).append(_Taken(self._taken_us[name], count))

    def used(self, name: str, setting: Rate, jobs: Iterable[Job]) -> None:
        """Note for which jobs the last take was; they have to start soon."""
        taken_us = self._taken_us[name]
        by_us = taken_us + max(setting.per_us // 2, LATE_US_MIN)
        for job in jobs:
            claim, taken = job.claim(), _Taken(taken_us, costs_of(job).get(name, 1))
            self._taken_for.setdefault(claim, {})[name] = taken
            self.start_by_us[claim] = min(by_us, self.start_by_us.get(claim, by_us))
            if has_costs(job.lane):
                self._running.setdefault(claim, {})[name] = taken

    def started(self, claims: Iterable[Claim], now_us: int) -> None:
        """Note that jobs started by now: they count from then on."""
        for claim in claims:
            for name, (taken_us, count) in self._forget(claim).items():
                self._moved.setdefault(name, []).append((taken_us, now_us, count))
                if claim in self._running:
                    self._running[claim][name] = _Taken(now_us, count)

    def spent(self, claim: Claim, name: str, units: int) -> None:
        """Note how much a job that has started really takes (rule N10); ignore other limits."""
        known = self._running.get(claim, {}).get(name)
        if known is not None and units != known.units:
            self._spent.setdefault(name, []).append(_Taken(known.at_us, units - known.units))
            self._running[claim][name] = _Taken(known.at_us, units)

    def keep(self, held: Callable[[], Iterable[Job]]) -> None:
        """Drop jobs that are no longer held and did not start: their share counts as used."""
        if self._taken_for or self._running:
            mine = {job.claim() for job in held()}
            for claim in [*self._taken_for]:
                if claim not in mine:
                    self._forget(claim)
            for claim in [*self._running]:
                if claim not in mine:
                    del self._running[claim]

    def _forget(self, claim: Claim) -> Mapping[str, _Taken]:
        self.start_by_us.pop(claim, None)
        return self._taken_for.pop(claim, {})

    def settle(self, rate_of: Callable[[str], Rate | None]) -> None:
        """Return what was not needed, count jobs as of their starts, and correct their costs."""
        for name in {**self._unused, **self._moved, **self._spent}:
            setting = rate_of(name)
            debts: list[_Taken] = []
            if setting is not None:
                moved, spent = self._moved.get(name, ()), self._spent.get(name, [])
                later = any(rate.are_apart(setting, taken, started) for taken, started, _ in moved)
                is_changed = later or self._unused.get(name) or spent
                if is_changed and not self._give_back(name, setting):  # it counts as used
                    debts = [taken for taken in spent if taken.units > 0]
            for notes in (self._unused, self._moved, self._spent):
                notes.pop(name, None)
            if debts:
                self._spent[name] = debts

    def _give_back(self, name: str, setting: Rate) -> bool:
        try:
            for _ in range(_ROUNDS_MAX):
                reading = self.read(name, setting)
                if self._write(name, setting, reading.version, reading.meter):
                    return True
        except (StoreUnavailable, StoreCorrupt):
            pass
        return False

    def _write(self, name: str, setting: Rate, version: bytes, meter: Meter) -> bool:
        return rate.write(
            self._engine.store, name, meter, setting, expect=version, ids=self._engine.ids
        )
