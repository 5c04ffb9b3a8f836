"""Where rows were put that claims with cursors may not read."""

import threading
from collections.abc import Iterable
from itertools import count
from typing import Final

from dueline.core.clock import SECOND_US
from dueline.core.lane import Lane
from dueline.stores.postgres.database import LEAST

COMMIT_US: Final = SECOND_US
"""Most rows are committed within this time. The cursor of a lane without more due rows is so far
behind the present, and a row that comes later, with a notification, is looked for in so long a
part of the lane, which begins with it."""

LATE_MAX: Final = 16
"""Maximum number of such parts of a lane; for more of them it is read from its start."""

EVERYWHERE: Final = LEAST
"""Stands for the parts of a lane that have more late rows."""

Places = dict[int, int]
"""Parts of a lane, by their numbers: the first position in each."""


class LateRows:
    """Where rows were put that a claim with a cursor may not read. Several threads use it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._places: dict[Lane, Places] = {}
        self._notes = count()

    def note(self, puts: Iterable[tuple[Lane, int]]) -> None:
        """Note lanes and positions where rows were put."""
        with self._lock:
            for lane, pos_us in puts:
                places = self._places.setdefault(lane, {})
                part = pos_us // COMMIT_US
                if EVERYWHERE not in places and (part in places or len(places) < LATE_MAX):
                    places[part] = min(pos_us, places.get(part, pos_us))
                else:
                    places.clear()
                    places[EVERYWHERE] = next(self._notes)

    def of(self, lane: Lane) -> Places:
        """Return the places in a lane that are known now."""
        with self._lock:
            return dict(self._places.get(lane, ()))

    def remove(self, lane: Lane, read: Places) -> None:
        """Remove places that have been read, but for rows that were noted meanwhile."""
        with self._lock:
            places = self._places.get(lane, {})
            for part, pos_us in read.items():
                if places.get(part) == pos_us:
                    del places[part]
            if not places:
                self._places.pop(lane, None)

    def clear(self) -> None:
        """Remove all places."""
        with self._lock:
            self._places.clear()
