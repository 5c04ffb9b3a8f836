"""What a worker takes of rates for the jobs that it claims."""

from collections import Counter
from collections.abc import Mapping
from typing import Final, NamedTuple

from dueline.errors import StoreUnavailable
from dueline.limiting import semaphore_of
from dueline.queue import Queues
from dueline.recipes import rate
from dueline.recipes.rate import Meter, Rate

_ROUNDS_MAX: Final = 20


class Reading(NamedTuple):
    """A meter as it was read. left: how many may be taken. next_us: when at least one may."""

    meter: Meter
    version: bytes
    left: int
    next_us: int


class Meters:
    """One worker's part in rates; for its loop alone.

    What was taken and not used is given back. If that fails, or the worker dies, it counts as
    used: a rate is never passed, and for its span it may not be reached (rule N5).
    """

    def __init__(self, queues: Queues) -> None:
        """Take the engine; reads nothing yet."""
        self._queues = queues
        self._unused: Counter[str] = Counter()

    def look(self, name: str, one: Rate) -> Reading:
        """Read a meter."""
        now_us = self._queues.time.earliest_us()
        meter, version = rate.read(self._queues.store, name)
        left = rate.left(meter, one, now_us)
        return Reading(meter, version, left, rate.next_us(meter, one, now_us))

    def take(self, name: str, one: Rate, reading: Reading, count: int) -> tuple[int, int]:
        """Take up to so many; tell how many, and when there is more.

        Raises: Unknown: they may be taken; then they count as used.
        """
        for _ in range(_ROUNDS_MAX):
            count = min(count, reading.left)
            if count <= 0 or self._change(name, one, reading, count):
                return max(0, count), reading.next_us
            reading = self.look(name, one)
        return 0, reading.next_us

    def unused(self, name: str, count: int) -> None:
        """Say that so many of what was taken was not needed."""
        self._unused[name] += count

    def settle(self, rates: Mapping[str, Rate]) -> None:
        """Give back what was not needed."""
        for name, count in [*self._unused.items()]:
            del self._unused[name]
            one = rates.get(semaphore_of(name))
            if one is not None and count > 0:
                self._give_back(name, one, count)

    def _give_back(self, name: str, one: Rate, count: int) -> None:
        try:
            for _ in range(_ROUNDS_MAX):
                if self._change(name, one, self.look(name, one), -count):
                    return
        except StoreUnavailable:  # it counts as used
            return

    def _change(self, name: str, one: Rate, reading: Reading, count: int) -> bool:
        now_us = self._queues.time.latest_us()  # what is taken comes back a little later
        meter = rate.less(reading.meter, one, count, now_us)
        return rate.write(
            self._queues.store, name, meter, one, expect=reading.version, ids=self._queues.ids
        )
