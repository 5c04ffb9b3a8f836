"""Wake-ups: notify workers of new jobs.

Optional, outside the store protocol. A lost wake-up delays a job until the worker's next poll.
"""

import threading
from collections.abc import Collection, Iterable
from typing import Protocol

from dueline.core.clock import SECOND_US
from dueline.core.store import Move

FALLBACK_US = 4_800_000
"""Maximum time between polls of an idle worker that receives wake-ups, in microseconds."""

WAKE_AHEAD_US = FALLBACK_US + SECOND_US
"""Maximum time until a job is due for which workers are woken: every worker polls before later."""


class WakeupListener(Protocol):
    """Receives the wake-ups of one worker.

    Attributes:
      is_open: Whether wake-ups can arrive; a worker without them polls more often.
    """

    is_open: bool

    def take(self) -> bool:
        """Return whether a wake-up arrived since the last call.

        Call it before a poll: a wake-up during the poll is returned by the next call.
        """
        ...

    def close(self) -> None:
        """Stop listening and remove what the listener created."""
        ...


class Wakeups(Protocol):
    """Wakes the workers of a store."""

    def wake(self, queues: Collection[str]) -> None:
        """Notify the workers that listen to one of these queues; never block or raise."""
        ...

    def listen(self, queues: Collection[str], wakeup: threading.Event) -> WakeupListener:
        """Open a listener for these queues; a wake-up sets `wakeup`.

        A worker also listens to its own name, so that it can be woken alone.
        """
        ...


def place_of(move: Move) -> tuple[str, int]:
    """Return the queue of a job after a move, and the time at which it is due."""
    return (move.to or move.job.lane).queue, move.at_us


def wake_before(wakeups: Wakeups, places: Iterable[tuple[str, int]], *, now_us: int) -> None:
    """Wake the workers of queues in which a job is due before their next poll.

    Args:
      waker: Wakes the workers.
      places: Queue and `at_us` of jobs that were inserted or moved.
      now_us: The current time.
    """
    until_us = now_us + WAKE_AHEAD_US
    queues = {queue for queue, at_us in places if at_us <= until_us}
    if queues:
        wakeups.wake(queues)


class NoListener:
    """A listener that never receives a wake-up."""

    is_open = False

    def take(self) -> bool:
        """Return False."""
        return False

    def close(self) -> None:
        """Do nothing."""


class NoWakeups:
    """Sends no wake-ups: for stores that cannot reach their workers."""

    def wake(self, queues: Collection[str]) -> None:
        """Do nothing."""

    def listen(self, queues: Collection[str], wakeup: threading.Event) -> WakeupListener:
        """Return a listener that never receives a wake-up."""
        del queues, wakeup
        return NoListener()


class DeferredWakeups:
    """Collects wake-ups until `release`: for jobs in an open transaction."""

    def __init__(self, wakeups: Wakeups) -> None:
        self._wakeups = wakeups
        self._queues: set[str] = set()

    def wake(self, queues: Collection[str]) -> None:
        """Collect the queues."""
        self._queues.update(queues)

    def release(self) -> None:
        """Send the collected wake-ups."""
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
        """Notify the workers of these queues."""
        for listener in self._listeners:
            listener.hear(queues)

    def listen(self, queues: Collection[str], wakeup: threading.Event) -> WakeupListener:
        """Open a listener for these queues."""
        listener = _LocalListener(self, frozenset(queues), wakeup)
        with self._guard:
            self._listeners = (*self._listeners, listener)
        return listener

    def forget(self, listener: "_LocalListener") -> None:
        """Remove a listener."""
        with self._guard:
            self._listeners = tuple(one for one in self._listeners if one is not listener)


class _LocalListener:
    """The listener of one worker in this process."""

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
