"""Lines of jobs with costs in one worker: what they wait for is reserved (rule N9)."""

from collections.abc import Iterable
from typing import Final, NamedTuple

from dueline.core.clock import SECOND_US
from dueline.limits.semaphore import PermitRequest

RESERVED_US: Final = SECOND_US // 4
"""How long after a refusal a worker asks again where enough is left, but reserved for others."""

ASK_US: Final = SECOND_US
"""How often a worker asks a rate on which more than one token is needed soon: other jobs may come
first.
"""

SOON_US: Final = 10 * SECOND_US
"""A rate that allows nothing for longer is asked less often, and no burst waits for it."""

AGED_US: Final = 30 * SECOND_US
"""A job with costs that waits longer reserves what it needs of all its limits: otherwise one of
them might always be used up when the other is there.
"""

PLACE_US: Final = 2 * SECOND_US
"""How long after the time at which it should ask again a line keeps its place."""

Kind = tuple[object, ...]
"""What asks for permits: jobs with the same limits and priority, or a line of jobs with costs."""


class _Place(NamedTuple):
    """What the first job of a line waits for. turn: as of other workers; smaller ones are first."""

    units: int
    turn: tuple[int, int]
    until_us: int


class Lines:
    """The places of the lines of one worker.

    Attributes:
      by_limit: The places for a limit, by line.
    """

    def __init__(self) -> None:
        self.by_limit: dict[str, dict[Kind, _Place]] = {}

    def all(self) -> set[Kind]:
        """Return the lines that have a place."""
        return {line for places in self.by_limit.values() for line in places}

    def before(self, name: str, wish: PermitRequest, kind: Kind, now_us: int) -> int:
        """Return how many units of a limit other lines of this worker wait for that come first."""
        lines = self.by_limit.get(name)
        if not lines:
            return 0
        mine = (-wish.priority, wish.since_us)
        return sum(
            place.units
            for other, place in lines.items()
            if other != kind and place.turn < mine and place.until_us > now_us
        )

    def is_first(self, name: str, kind: Kind, now_us: int) -> bool:
        """Return whether the place of a line is the first one for a limit."""
        places = self.by_limit.get(name, {})
        mine = places.get(kind)
        return mine is not None and all(
            mine.turn <= place.turn for place in places.values() if place.until_us > now_us
        )

    def stand(
        self, name: str, units: int, wish: PermitRequest, kind: Kind, ask_us: int
    ) -> PermitRequest:
        """Put the first job of a line in line for a limit; return what to record for it."""
        place = _Place(units, (-wish.priority, wish.since_us), ask_us + PLACE_US)
        self.by_limit.setdefault(name, {})[kind] = place
        return wish._replace(more=units, is_kept=True)

    def leave(self, limits: Iterable[str], kind: Kind) -> None:
        """Give up the places of a line whose first job was served, or is there no more."""
        for name in limits:
            self.by_limit.get(name, {}).pop(kind, None)

    def without_asking(self, now_us: int) -> list[str]:
        """Give up the places of lines that do not ask any more: their jobs run elsewhere.

        Returns:
            The limits for which no line waits now.
        """
        left: list[str] = []
        for name, lines in [*self.by_limit.items()]:
            for kind in [kind for kind, place in lines.items() if place.until_us <= now_us]:
                del lines[kind]
            if not lines:
                del self.by_limit[name]
                left.append(name)
        return left


def ask_us_of(next_us: int, now_us: int) -> int:
    """Return when to ask a rate again on which enough is left at a time."""
    if next_us <= now_us:  # it is reserved for others
        return now_us + RESERVED_US
    if next_us - now_us <= SOON_US:
        return min(next_us, now_us + ASK_US)
    return min(next_us, now_us + SOON_US + ASK_US)
