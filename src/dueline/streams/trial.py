"""Attempts at events that are written down before they are made (rule F7).

A process that dies in a handler says nothing. So a consumer that finds such an end before its own
writes down, beside the checkpoint, which events it is about to handle. Of events that are handled
in vain again and again the next consumer then knows how many processes died of them.
"""

from collections.abc import Hashable
from dataclasses import dataclass, replace
from threading import Lock
from typing import Final

from dueline.core.clock import SECOND_US, Clock
from dueline.log.checkpoint import Place

WAITS_US: Final = 2 * SECOND_US
"""How long nobody else begins once a suspect had to wait; it asks again well within that."""


@dataclass(frozen=True, slots=True)
class Trial:
    """What is known of events that may kill the process that handles them.

    at: the place of the first event, and until: of the last that may be to blame; microseconds
    and the id as hexadecimal text. deaths: how many processes died while `at` was handled alone;
    0 where it never was. epoch: under which an attempt is under way, which `deaths` counts as if
    its process had died already; 0 where none is. key: what was set aside, of an event that is
    handled again at its operator's wish; empty for others.
    """

    at: tuple[int, str]
    until: tuple[int, str]
    deaths: int = 0
    epoch: int = 0
    key: str = ""

    @property
    def until_place(self) -> Place:
        """The place of the last event that may be to blame."""
        return _place(self.until)

    def deaths_at(self, place: Place, key: str) -> int:
        """Return how many processes died while this event was handled alone."""
        return self.deaths if (_place(self.at), self.key) == (place, key) else 0

    def over(self) -> "Trial":
        """Return it after its attempt, however that ended but by a death."""
        return replace(self, deaths=max(0, self.deaths - 1), epoch=0) if self.epoch else self

    def after(self, place: Place) -> "Trial | None":
        """Return what is left of it behind a place."""
        if place >= self.until_place:
            return None
        return Trial((place[0], place[1].hex()), self.until)


def begun(before: Trial | None, first: Place, last: Place, *, epoch: int, key: str = "") -> Trial:
    """Return the trial of events that are about to be handled.

    Args: before: what is known. first, last: where they lie. epoch: under which. key: as of Trial.
    """
    at = (first[0], first[1].hex())
    is_wider = before is not None and not (key or before.key)
    until = max(last, before.until_place) if before is not None and is_wider else last
    deaths = 0
    if first == last:
        deaths = 1 + (0 if before is None else before.deaths_at(first, key))
    return Trial(at, (until[0], until[1].hex()), deaths, epoch, key)


class HandlerIsolation:
    """Which handlers run in a process, so that one that may kill it runs alone.

    The members of all groups that a process consumes for share it.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = Lock()
        self._running: set[Hashable] = set()
        self._alone: Hashable = None
        self._waiting: dict[Hashable, int] = {}

    def enter(self, who: Hashable, *, alone: bool) -> bool:
        """Begin to run a handler; False: not now, since one runs alone, or waits to."""
        now_us = self._clock.monotonic_us()
        with self._lock:
            self._waiting = {one: us for one, us in self._waiting.items() if us > now_us}
            self._waiting.pop(who, None)
            if self._alone not in (None, who):
                return False
            if alone and self._running - {who}:
                self._waiting[who] = now_us + WAITS_US
                return False
            if not alone and self._waiting:
                return False
            self._alone = who if alone else None
            self._running.add(who)
            return True

    def leave(self, who: Hashable) -> None:
        """Note that a handler has ended, or was not called."""
        with self._lock:
            self._running.discard(who)
            if self._alone == who:
                self._alone = None


def _place(at: tuple[int, str]) -> Place:
    return at[0], bytes.fromhex(at[1])
