"""Trials: attempts that are recorded before the handler is called (rule F7).

A process that dies in a handler reports nothing. So after such a death the next consumer records,
beside the checkpoint, which events it is about to handle. For events that keep killing processes,
the next consumer then knows how many processes died.
"""

from collections.abc import Hashable
from dataclasses import dataclass, replace
from threading import Lock
from typing import Final

from dueline.core.clock import SECOND_US, Clock
from dueline.log.checkpoint import Place

WAITS_US: Final = 2 * SECOND_US
"""How long no other handler starts once a suspect had to wait; it asks again well within that."""


@dataclass(frozen=True, slots=True)
class Trial:
    """What is known about events that may kill the process that handles them.

    at, until: the positions of the first and the last suspect; microseconds, and the id as a
    hexadecimal string. deaths: how many processes died while `at` was handled alone, 0 if it never
    was. epoch: of the attempt that is under way, which `deaths` already counts as a death; 0 for
    none. key: the parked key of an event that is handled again because an operator asked.
    """

    at: tuple[int, str]
    until: tuple[int, str]
    deaths: int = 0
    epoch: int = 0
    key: str = ""

    @property
    def until_place(self) -> Place:
        """The position of the last suspect."""
        return _place(self.until)

    def deaths_at(self, place: Place, key: str) -> int:
        """Return how many processes died while this event was handled alone."""
        return self.deaths if (_place(self.at), self.key) == (place, key) else 0

    def over(self) -> "Trial":
        """Return the trial after an attempt that the process survived."""
        return replace(self, deaths=max(0, self.deaths - 1), epoch=0) if self.epoch else self

    def after(self, place: Place) -> "Trial | None":
        """Return the trial of the suspects past a position; None: none are left."""
        if place >= self.until_place:
            return None
        return Trial((place[0], place[1].hex()), self.until)


def begun(before: Trial | None, first: Place, last: Place, *, epoch: int, key: str = "") -> Trial:
    """Return the trial of events that are about to be handled.

    Args: before: the trial so far. first, last: their positions. epoch, key: as in Trial.
    """
    at = (first[0], first[1].hex())
    is_wider = before is not None and not (key or before.key)
    until = max(last, before.until_place) if before is not None and is_wider else last
    deaths = 0
    if first == last:
        deaths = 1 + (0 if before is None else before.deaths_at(first, key))
    return Trial(at, (until[0], until[1].hex()), deaths, epoch, key)


class HandlerIsolation:
    """The handlers that run in a process, so that one that may kill it runs alone.

    All consumers of a process share it.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = Lock()
        self._running: set[Hashable] = set()
        self._alone: Hashable = None
        self._waiting: dict[Hashable, int] = {}

    def enter(self, who: Hashable, *, alone: bool) -> bool:
        """Start a handler; False: not now, since another runs alone, or waits to."""
        now_us = self._clock.monotonic_us()
        with self._lock:
            self._waiting = {other: us for other, us in self._waiting.items() if us > now_us}
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
        """Note that a handler has ended, or was not called after all."""
        with self._lock:
            self._running.discard(who)
            if self._alone == who:
                self._alone = None


def _place(at: tuple[int, str]) -> Place:
    return at[0], bytes.fromhex(at[1])
