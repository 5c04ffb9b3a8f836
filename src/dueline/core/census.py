"""Lanes that hold rows, wherever they are listed.

Beside the waist, optional: a store that can go through its lanes at little cost lets the monitor
find one that holds jobs and that nobody looks at. No protocol needs it: it is how an error of
ours, or of somebody who wrote into the tables, comes to light.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from dueline.core.lane import Lane


class LanesHeld(NamedTuple):
    """Some lanes that hold rows, in an order of the store's own; `after` continues, None ends."""

    lanes: Sequence[Lane]
    after: str | None


@runtime_checkable
class Census(Protocol):
    """A store that can tell which lanes hold rows."""

    def lanes_held(self, *, after: str | None, limit: int) -> LanesHeld:
        """Go through the lanes that hold rows, past `after`; one may be told twice."""
        ...
