"""Tells workers of new work.

Beside the waist, and optional: a wake-up that is lost, or never sent, costs a worker's next look
at the lane lists, never a job.
"""

import threading
from collections.abc import Collection, Iterable
from typing import Protocol

from dueline.core.clock import SECOND_US
from dueline.core.store import Move

FALLBACK_US = 4_800_000
"""An idle worker that can be woken looks at least this often by itself: under five seconds."""

WAKE_AHEAD_US = FALLBACK_US + SECOND_US
"""Nobody is woken for a job that is due later: every worker looks before it is."""


class WakeupListener(Protocol):
    """Where one worker hears that there may be work.

    is_open: whether it can be heard at all; a worker whose listener is not looks more often.
    """

    is_open: bool

    def take(self) -> bool:
        """Tell whether anything was heard since the last call, and forget it.

        To be called before a look: what is heard during it is told by the next call.
        """
        ...

    def close(self) -> None:
        """Hear no more, and leave nothing behind."""
        ...


class Wakeups(Protocol):
    """What wakes the workers of a store."""

    def wake(self, queues: Collection[str]) -> None:
        """Tell those who listen to one of these queues to look; never waits, never raises."""
        ...

    def listen(self, queues: Collection[str], wakeup: threading.Event) -> WakeupListener:
        """Open a listener for these queues; `wakeup` is set when it hears something.

        A worker listens to its own name too, so that it can be woken alone.
        """
        ...


def place_of(move: Move) -> tuple[str, int]:
    """Tell where, and from when on, a job may be claimed after a move."""
    return (move.to or move.job.lane).queue, move.at_us


def wake_before(wakeups: Wakeups, places: Iterable[tuple[str, int]], *, now_us: int) -> None:
    """Wake the workers of queues in which a job may be claimed before their next look.

    Args: places: queue and `at_us` of jobs that were stored or moved.
    """
    until_us = now_us + WAKE_AHEAD_US
    queues = {queue for queue, at_us in places if at_us <= until_us}
    if queues:
        wakeups.wake(queues)


class NoListener:
    """A listener that hears nothing."""

    is_open = False

    def take(self) -> bool:
        """Tell that nothing was heard."""
        return False

    def close(self) -> None:
        """Nothing to close."""


class NoWakeups:
    """Wakes nobody: for stores whose workers cannot be reached."""

    def wake(self, queues: Collection[str]) -> None:
        """Say nothing."""

    def listen(self, queues: Collection[str], wakeup: threading.Event) -> WakeupListener:
        """Return a listener that hears nothing."""
        del queues, wakeup
        return NoListener()


class DeferredWakeups:
    """Wakes nobody until it is told to: for jobs that nobody else can see yet."""

    def __init__(self, wakeups: Wakeups) -> None:
        self._wakeups = wakeups
        self._queues: set[str] = set()

    def wake(self, queues: Collection[str]) -> None:
        """Remember the queues."""
        self._queues.update(queues)

    def release(self) -> None:
        """Wake those who serve what is remembered."""
        if self._queues:
            self._wakeups.wake(self._queues)

    def listen(self, queues: Collection[str], wakeup: threading.Event) -> WakeupListener:
        """Open a listener for these queues."""
        return self._wakeups.listen(queues, wakeup)


class LocalWakeups:
    """Wakes the workers of this process."""

    def __init__(self) -> None:
        self._listeners: tuple[_LocalListener, ...] = ()  # replaced as one: threads share this
        self._guard = threading.Lock()

    def wake(self, queues: Collection[str]) -> None:
        """Tell those who serve one of these queues to look."""
        for listener in self._listeners:
            listener.hear(queues)

    def listen(self, queues: Collection[str], wakeup: threading.Event) -> WakeupListener:
        """Open a listener for these queues."""
        listener = _LocalListener(self, frozenset(queues), wakeup)
        with self._guard:
            self._listeners = (*self._listeners, listener)
        return listener

    def forget(self, listener: "_LocalListener") -> None:
        """Wake it no more."""
        with self._guard:
            self._listeners = tuple(one for one in self._listeners if one is not listener)


class _LocalListener:
    """One worker of this process."""

    is_open = True

    def __init__(
        self, wakeups: LocalWakeups, queues: frozenset[str], wakeup: threading.Event
    ) -> None:
        self._wakeups = wakeups
        self._queues = queues
        self._wakeup = wakeup
        self._heard = False

    def hear(self, queues: Collection[str]) -> None:
        if not self._queues.isdisjoint(queues):
            self._heard = True
            self._wakeup.set()

    def take(self) -> bool:
        heard, self._heard = self._heard, False
        return heard

    def close(self) -> None:
        self._wakeups.forget(self)
