"""Wake-ups: notify workers of new jobs.

Optional, outside the store protocol. A lost wake-up delays a job until the worker's next poll.
"""

import os
import select
import socket
import threading
import weakref
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final, NamedTuple, Protocol

from dueline.core.clock import SECOND_US
from dueline.core.codec import decode, encode
from dueline.core.errors import StoreCorrupt
from dueline.core.lane import Lane
from dueline.core.store import Move
from dueline.core.system import IS_POSIX

FALLBACK_US = 4_800_000
"""Maximum time between polls of an idle worker that receives wake-ups, in microseconds."""

GAP_US_MAX_WITHOUT_WAKEUPS: Final = 250_000
"""The same for a worker that receives none."""

FALLBACK_US_MAX: Final = 24 * SECOND_US
"""The same where the workers of a large fleet take turns."""

WAKE_AHEAD_US = FALLBACK_US_MAX + SECOND_US
"""Maximum time until a job is due for which workers are woken: every worker polls before later."""

WAKEUPS_MAX: Final = 16
"""Maximum number of wake-ups that a listener keeps; more become one that asks for a poll."""


class Wakeup(NamedTuple):
    """A message to workers: jobs became due, or will soon.

    A hint: it may be lost, come late, come twice, or name a lane whose jobs are gone. It is
    sent after the jobs were committed.

    Attributes:
      channel: A queue; or the name of one worker, or of a stream's channel.
      at_us: When the first of the jobs is due; 0 if unknown.
      lane: The lane with all of these jobs, so that a worker claims from it without reading the
        lane list; None if there are several, or if something else changed.
    """

    channel: str
    at_us: int = 0
    lane: Lane | None = None

    def to_bytes(self, bytes_max: int) -> bytes:
        """Return it as a message, without its lane if the message were longer than this."""
        message = encode(self)
        return message if len(message) <= bytes_max else encode(Wakeup(self.channel))


def read_wakeup(message: bytes) -> Wakeup | None:
    """Return the wake-up of a message; None if it is not one."""
    try:
        return decode(message, Wakeup)
    except StoreCorrupt:
        return None


def merged(wakeups: Iterable[Wakeup]) -> list[Wakeup]:
    """Return one wake-up for each channel: without a lane if several differ."""
    earliest: dict[str, Wakeup] = {}
    for wakeup in wakeups:
        known = earliest.setdefault(wakeup.channel, wakeup)
        if known is not wakeup:
            lane = wakeup.lane if wakeup.lane == known.lane else None
            earliest[wakeup.channel] = Wakeup(wakeup.channel, min(wakeup.at_us, known.at_us), lane)
    return list(earliest.values())


class Signal(threading.Event):
    """An event that a thread can wait for together with a descriptor. Other threads set it."""

    def __init__(self) -> None:
        super().__init__()
        self._is_on = False
        self._read: Callable[[int], bytes]
        self._write: Callable[[bytes], int]
        if IS_POSIX:
            self._reader, writer = os.pipe()
            for descriptor in (self._reader, writer):
                os.set_blocking(descriptor, False)
                weakref.finalize(self, os.close, descriptor)
            self._read, self._write = partial(os.read, self._reader), partial(os.write, writer)
        else:  # where only sockets can be selected
            ends = socket.socketpair()
            for end in ends:
                end.setblocking(False)  # noqa: FBT003  (its only parameter)
                weakref.finalize(self, end.close)
            self._reader = ends[0].fileno()
            self._read, self._write = ends[0].recv, ends[1].send

    def is_set(self) -> bool:
        """Return whether it is set."""
        return self._is_on

    def set(self) -> None:
        """Set it, which ends a wait."""
        if not self._is_on:
            self._is_on = True
            with suppress(BlockingIOError):  # full: it ends a wait anyway
                self._write(b"\0")

    def clear(self) -> None:
        """Clear it."""
        if self._is_on:
            self._is_on = False
            self._drain()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is set, or the timeout; return whether it is set."""
        self.wait_or_read(None, timeout)
        return self._is_on

    def wait_or_read(self, descriptor: int | None, timeout_s: float | None) -> bool:
        """Wait until it is set, a descriptor can be read, or the timeout.

        Returns:
          Whether the descriptor can be read.
        """
        if self._is_on:
            return False
        watched = [self._reader] if descriptor is None else [self._reader, descriptor]
        ready = _readable(watched, timeout_s)
        if self._reader in ready and not self._is_on:  # cleared before the byte was written
            self._drain()
        return descriptor in ready

    def _drain(self) -> None:
        with suppress(BlockingIOError):
            self._read(64)


def _readable(descriptors: Sequence[int], timeout_s: float | None) -> Collection[int]:
    """Wait for the first readable descriptors; `select` is exact, but ends at 1024."""
    try:
        return select.select(descriptors, (), (), timeout_s)[0]
    except ValueError:
        poll = select.poll()
        for descriptor in descriptors:
            poll.register(descriptor, select.POLLIN)
        return [fd for fd, _ in poll.poll(None if timeout_s is None else timeout_s * 1000)]


class WakeupListener(Protocol):
    """Receives the wake-ups of one worker, which waits on it.

    Attributes:
      is_open: Whether wake-ups can arrive.
      gap_us_max: Maximum time between polls of an idle worker, in microseconds; it may change.
      address: Where it receives wake-ups from other machines; empty without any.
    """

    is_open: bool
    address: str

    @property
    def gap_us_max(self) -> int: ...  # noqa: D102

    def wait(self, timeout_s: float) -> None:
        """Wait until a wake-up arrives, the worker's event is set, or the timeout."""
        ...

    def take(self) -> Sequence[Wakeup]:
        """Return the wake-ups since the last call; if one may be lost, one without a lane.

        Call it before a poll: a wake-up during the poll is returned by the next call.
        """
        ...

    def missed(self) -> None:
        """Note that a poll found jobs of which no wake-up had arrived."""
        ...

    def close(self) -> None:
        """Stop listening and remove what the listener created."""
        ...


class Wakeups(Protocol):
    """Wakes the workers of a store."""

    def wake(self, wakeups: Collection[Wakeup]) -> None:
        """Notify the workers that listen to one of these channels; never block or raise."""
        ...

    def listen(self, channels: Collection[str], wakeup: Signal) -> WakeupListener:
        """Open a listener for these channels: queues, and the worker's own name.

        Args:
          channels: The channels.
          wakeup: The worker's event, which also ends its waits.
        """
        ...


def place_of(move: Move) -> tuple[Lane, int]:
    """Return the lane of a job after a move, and the time at which it is due."""
    return move.to or move.job.lane, move.at_us


def wakeups_of(places: Iterable[tuple[Lane, int]], *, now_us: int) -> list[Wakeup]:
    """Return wake-ups for the workers of queues in which a job is due before their next poll.

    Args:
      places: Lane and `at_us` of jobs that were inserted or moved.
      now_us: The current time.
    """
    until_us = now_us + WAKE_AHEAD_US
    soon = [Wakeup(lane.queue, at_us, lane) for lane, at_us in places if at_us <= until_us]
    return merged(soon) if len(soon) > 1 else soon


def wake_before(wakeups: Wakeups, places: Iterable[tuple[Lane, int]], *, now_us: int) -> None:
    """Send the wake-ups of `wakeups_of`."""
    if soon := wakeups_of(places, now_us=now_us):
        wakeups.wake(soon)


class NoListener:
    """A listener that never receives a wake-up.

    Args:
      wakeup: The worker's event.
    """

    is_open = False
    address = ""
    gap_us_max = GAP_US_MAX_WITHOUT_WAKEUPS

    def __init__(self, wakeup: threading.Event) -> None:
        self._wakeup = wakeup

    def wait(self, timeout_s: float) -> None:
        """Wait until the event is set, or the timeout."""
        self._wakeup.wait(timeout_s)

    def take(self) -> Sequence[Wakeup]:
        """Return nothing."""
        return ()

    def missed(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


class NoWakeups:
    """Sends no wake-ups: for stores that cannot reach their workers."""

    def wake(self, wakeups: Collection[Wakeup]) -> None:
        """Do nothing."""

    def listen(self, channels: Collection[str], wakeup: threading.Event) -> WakeupListener:
        """Return a listener that never receives a wake-up."""
        del channels
        return NoListener(wakeup)


class DeferredWakeups:
    """Collects wake-ups until `release`: for jobs in an open transaction."""

    def __init__(self, wakeups: Wakeups) -> None:
        self._wakeups = wakeups
        self._collected: list[Wakeup] = []

    def wake(self, wakeups: Collection[Wakeup]) -> None:
        """Collect the wake-ups."""
        self._collected = merged([*self._collected, *wakeups])

    def release(self) -> None:
        """Send the collected wake-ups."""
        if self._collected:
            self._wakeups.wake(self._collected)

    def listen(self, channels: Collection[str], wakeup: Signal) -> WakeupListener:
        """Open a listener for these channels."""
        return self._wakeups.listen(channels, wakeup)


class LocalWakeups:
    """Wakes the workers of this process."""

    def __init__(self) -> None:
        self._listeners: tuple[_LocalListener, ...] = ()  # replaced as one: threads share this
        self._guard = threading.Lock()

    def wake(self, wakeups: Collection[Wakeup]) -> None:
        """Notify the workers of these channels."""
        for listener in self._listeners:
            listener.hear(wakeups)

    def listen(self, channels: Collection[str], wakeup: threading.Event) -> WakeupListener:
        """Open a listener for these channels."""
        listener = _LocalListener(self, frozenset(channels), wakeup)
        with self._guard:
            self._listeners = (*self._listeners, listener)
        return listener

    def forget(self, listener: "_LocalListener") -> None:
        """Remove a listener."""
        with self._guard:
            self._listeners = tuple(other for other in self._listeners if other is not listener)


class _LocalListener(NoListener):
    """The listener of one worker in this process."""

    is_open = True
    gap_us_max = FALLBACK_US

    def __init__(
        self, wakeups: LocalWakeups, channels: frozenset[str], wakeup: threading.Event
    ) -> None:
        super().__init__(wakeup)
        self._wakeups = wakeups
        self._channels = channels
        self._heard: deque[Wakeup] = deque(maxlen=WAKEUPS_MAX + 1)

    def hear(self, wakeups: Collection[Wakeup]) -> None:
        for wakeup in wakeups:
            if wakeup.channel in self._channels:
                is_full = len(self._heard) >= WAKEUPS_MAX
                self._heard.append(Wakeup(wakeup.channel) if is_full else wakeup)
                self._wakeup.set()

    def take(self) -> Sequence[Wakeup]:
        heard: list[Wakeup] = []
        with suppress(IndexError):
            while True:
                heard.append(self._heard.popleft())
        return heard

    def close(self) -> None:
        self._wakeups.forget(self)
