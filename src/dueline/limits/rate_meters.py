"""What a worker takes of rates for the jobs that it claims."""

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
"""A job starts at most half its rate's span after the claim, or this long if that is more."""


class MeterReading(NamedTuple):
    """A meter as it was read, and as it is once what is not needed is given back.

    left: how many may be taken. next_us: when at least one may.
    """

    meter: Meter
    version: bytes
    left: int
    next_us: int


class RateMeters:
    """One worker's part in rates; for its loop alone.

    What was taken and not used is given back, as of when it was taken. If that fails, or the
    worker dies, it counts as used: a rate is never passed, and for its span it may not be reached
    (rule N5). What is taken next gives it back in the same write: a lane in which nothing was due
    keeps nothing from the lanes after it.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._taken_us: dict[str, int] = {}  # when it was last
        self._unused: dict[str, list[tuple[int, int]]] = {}  # so many that were taken then
        self._moved: dict[str, list[tuple[int, int]]] = {}  # taken then, started then
        self._taken_for: dict[Claim, dict[str, int]] = {}  # by limit, when
        self.start_by_us: dict[Claim, int] = {}

    def look(self, name: str, one: Rate) -> MeterReading:
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
        """Take up to so many; tell how many, and when there is more.

        Raises: Unknown: they may be taken; then they count as used.
        """
        for _ in range(_ROUNDS_MAX):
            count = min(count, reading.left)
            if count <= 0:
                break
            now_us = self._engine.time.latest_us()  # what is taken comes back a little later
            earliest_us = self._engine.time.earliest_us()
            meter = rate.after_taking(reading.meter, one, count, now_us, earliest_us=earliest_us)
            back = self._unused.pop(name, [])  # where nobody knows what came of it: as used
            later = self._moved.pop(name, [])
            if self._write(name, one, reading, meter):
                self._taken_us[name] = now_us
                return count, reading.next_us
            self._unused[name], self._moved[name] = back, later
            reading = self.look(name, one)
        return 0, reading.next_us

    def unused(self, name: str, count: int) -> None:
        """Say that so many of what was taken last was not needed."""
        if count > 0 and name in self._taken_us:
            self._unused.setdefault(name, []).append((count, self._taken_us[name]))

    def used(self, name: str, one: Rate, claims: Iterable[Claim]) -> None:
        """Note for which claims the last was taken; their jobs have to start soon."""
        taken_us = self._taken_us[name]
        by_us = taken_us + max(one.per_us // 2, LATE_US_MIN)
        for claim in claims:
            self._taken_for.setdefault(claim, {})[name] = taken_us
            self.start_by_us[claim] = min(by_us, self.start_by_us.get(claim, by_us))

    def started(self, claims: Iterable[Claim], now_us: int) -> None:
        """Note that jobs started, at this time at the latest: they count from then on."""
        for claim in claims:
            for name, taken_us in self._forget(claim).items():
                self._moved.setdefault(name, []).append((taken_us, now_us))

    def keep(self, held: Callable[[], Iterable[Job]]) -> None:
        """Forget jobs that are not held and did not start: what was taken for them is used."""
        if self._taken_for:
            mine = {job.claim() for job in held()}
            for claim in [*self._taken_for]:
                if claim not in mine:
                    self._forget(claim)

    def _forget(self, claim: Claim) -> Mapping[str, int]:
        self.start_by_us.pop(claim, None)
        return self._taken_for.pop(claim, {})

    def settle(self, rates: Mapping[str, Rate]) -> None:
        """Give back what was not needed, and count as of their starts what started later."""
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
                reading = self.look(name, one)
                if self._write(name, one, reading, reading.meter):
                    return
        except (StoreUnavailable, StoreCorrupt):  # it counts as used
            return

    def _write(self, name: str, one: Rate, reading: MeterReading, meter: Meter) -> bool:
        return rate.write(
            self._engine.store, name, meter, one, expect=reading.version, ids=self._engine.ids
        )
