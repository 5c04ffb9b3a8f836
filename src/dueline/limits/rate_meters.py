"""What a worker takes from rate limits for the jobs that it claims."""

from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from dueline.core.clock import SECOND_US
from dueline.core.engine import Engine
from dueline.core.errors import StoreCorrupt, StoreUnavailable
from dueline.core.job import Claim, Job
from dueline.core.limit_names import semaphore_of
from dueline.limits import rate
from dueline.limits.rate import Meter, Rate

_ROUNDS_MAX: Final = 20

LATE_US_MIN: Final = SECOND_US // 2
"""A job starts at most half the period of its rate after the claim, or this long if longer."""


class MeterReading(NamedTuple):
    """A meter as it was read, after the return of what is not needed.

    left: how many may be taken. next_us: when at least one may be taken.
    """

    meter: Meter
    version: bytes
    left: int
    next_us: int


class RateMeters:
    """One worker's share of rate limits; only its loop uses it.

    What was taken and not used is returned, as of the time when it was taken. If that fails, or the
    worker dies, it counts as used: a rate is never exceeded, and may be underused for one period
    (rule N5). The next take returns it in the same write, so that a lane in which nothing was due
    takes nothing from the lanes after it.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._taken_us: dict[str, int] = {}  # when it was last
        self._unused: dict[str, list[tuple[int, int]]] = {}  # count, and when they were taken
        self._moved: dict[str, list[tuple[int, int]]] = {}  # when taken, when started
        self._taken_for: dict[Claim, dict[str, int]] = {}  # by limit, when
        self.start_by_us: dict[Claim, int] = {}

    def read(self, name: str, one: Rate) -> MeterReading:
        """Read a meter."""
        now_us = self._engine.time.earliest_us()
        meter, version = rate.read(self._engine.store, name)
        latest_us = self._engine.time.latest_us()
        for count, taken_us in self._unused.get(name, ()):
            meter = rate.after_returning(meter, one, count, taken_us, latest_us)
        for taken_us, started_us in self._moved.get(name, ()):
            meter = rate.after_start(meter, one, taken_us, started_us)
        left = rate.left(meter, one, now_us)
        return MeterReading(meter, version, left, rate.next_us(meter, one, now_us))

    def take(self, name: str, one: Rate, reading: MeterReading, count: int) -> tuple[int, int]:
        """Take up to `count`; return how many, and when there is more.

        Raises: Unknown: they may be taken, and then count as used.
        """
        for _ in range(_ROUNDS_MAX):
            count = min(count, reading.left)
            if count <= 0:
                break
            now_us = self._engine.time.latest_us()  # as of the latest time that it can be
            earliest_us = self._engine.time.earliest_us()
            meter = rate.after_taking(reading.meter, one, count, now_us, earliest_us=earliest_us)
            back = self._unused.pop(name, [])  # if the outcome is unknown, it counts as used
            later = self._moved.pop(name, [])
            if self._write(name, one, reading, meter):
                self._taken_us[name] = now_us
                return count, reading.next_us
            self._unused[name], self._moved[name] = back, later
            reading = self.read(name, one)
        return 0, reading.next_us

    def unused(self, name: str, count: int) -> None:
        """Note that `count` of what was taken last is not needed."""
        if count > 0 and name in self._taken_us:
            self._unused.setdefault(name, []).append((count, self._taken_us[name]))

    def used(self, name: str, one: Rate, claims: Iterable[Claim]) -> None:
        """Note for which claims the last take was; their jobs have to start soon."""
        taken_us = self._taken_us[name]
        by_us = taken_us + max(one.per_us // 2, LATE_US_MIN)
        for claim in claims:
            self._taken_for.setdefault(claim, {})[name] = taken_us
            self.start_by_us[claim] = min(by_us, self.start_by_us.get(claim, by_us))

    def started(self, claims: Iterable[Claim], now_us: int) -> None:
        """Note that jobs started by now: they count from then on."""
        for claim in claims:
            for name, taken_us in self._forget(claim).items():
                self._moved.setdefault(name, []).append((taken_us, now_us))

    def keep(self, held: Callable[[], Iterable[Job]]) -> None:
        """Drop jobs that are no longer held and did not start: their share counts as used."""
        if self._taken_for:
            mine = {job.claim() for job in held()}
            for claim in [*self._taken_for]:
                if claim not in mine:
                    self._forget(claim)

    def _forget(self, claim: Claim) -> Mapping[str, int]:
        self.start_by_us.pop(claim, None)
        return self._taken_for.pop(claim, {})

    def settle(self, rates: Mapping[str, Rate]) -> None:
        """Return what was not needed, and count jobs as of their starts."""
        for name in {**self._unused, **self._moved}:
            one = rates.get(semaphore_of(name))
            if one is not None:
                later = [pair for pair in self._moved.get(name, ()) if rate.are_apart(one, *pair)]
                if later or self._unused.get(name):
                    self._give_back(name, one)
            self._unused.pop(name, None)
            self._moved.pop(name, None)

    def _give_back(self, name: str, one: Rate) -> None:
        try:
            for _ in range(_ROUNDS_MAX):
                reading = self.read(name, one)
                if self._write(name, one, reading, reading.meter):
                    return
        except (StoreUnavailable, StoreCorrupt):  # what is not given back counts as used
            return

    def _write(self, name: str, one: Rate, reading: MeterReading, meter: Meter) -> bool:
        return rate.write(
            self._engine.store, name, meter, one, expect=reading.version, ids=self._engine.ids
        )
