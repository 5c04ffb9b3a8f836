"""Wake-ups where a producer only notifies workers that have said that they are idle.

A worker notes its channels in the store and polls once more. The first producer removes them and
notifies. A process has one connection that listens, for all its workers. Shared by the stores of
servers that pass messages on.
"""

import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from typing import ClassVar, Final

from dueline.core.errors import DuelineError
from dueline.core.wakeup import (
    FALLBACK_US,
    LocalWakeups,
    NoListener,
    Signal,
    Wakeup,
    WakeupListener,
)

RECONNECT_S: Final = 1.0
"""Time between two attempts to listen again after the connection was lost, in seconds."""

PATIENCE_S: Final = 1.0
"""Time after which the thread checks whether there is still a listener, in seconds."""


class Notified(threading.local):
    """What the last insert of a thread has sent.

    Attributes:
      wakeups: The wake-ups.
    """

    wakeups: Sequence[Wakeup] = ()

    def cover(self, wakeups: Iterable[Wakeup]) -> bool:
        """Return whether these need not be sent any more; the next ones do."""
        sent, self.wakeups = self.wakeups, ()
        return all(any(_is_in(wakeup, other) for other in sent) for wakeup in wakeups)


def _is_in(wakeup: Wakeup, sent: Wakeup) -> bool:
    is_of_lane = sent.lane is None or sent.lane == wakeup.lane
    return sent.channel == wakeup.channel and sent.at_us <= wakeup.at_us and is_of_lane


class IdleWakeups(ABC):
    """Passes the messages that come to the workers of this process.

    Attributes:
      lost: Errors of the driver after which a message may be lost, which only delays a job.
    """

    lost: ClassVar[tuple[type[Exception], ...]]

    def __init__(self) -> None:
        self._local = LocalWakeups()
        self._listeners: list[IdleListener] = []
        self._process = 0
        self._guard = threading.Lock()

    @abstractmethod
    def say_idle(self, channels: Sequence[str]) -> bool:
        """Ask the next producer to notify; return whether that was not asked before."""

    @abstractmethod
    def _has_started(self) -> bool:
        """Start the thread of this process that listens; return whether it can."""

    def listen(self, channels: Collection[str], wakeup: Signal) -> WakeupListener:
        """Open a listener; one that never hears anything if this process cannot listen."""
        listener = IdleListener(self, self._local.listen(channels, wakeup), channels)
        with self._guard:
            if self._process != os.getpid():  # the parent's thread is not in this process
                self._process, self._listeners = os.getpid(), []
            self._listeners.append(listener)
            if len(self._listeners) > 1 or self._has_started():
                return listener
            self._listeners.remove(listener)
        return NoListener(wakeup)

    def forget(self, listener: "IdleListener") -> None:
        """Remove a listener; the thread ends after the last one."""
        with self._guard, suppress(ValueError):
            self._listeners.remove(listener)

    def _wake_all(self) -> None:
        """Have the workers poll, since messages may have been lost."""
        channels = {channel for listener in list(self._listeners) for channel in listener.channels}
        self._local.wake([Wakeup(channel) for channel in channels])


class IdleListener:
    """The listener of one worker, which says that it is idle before it waits."""

    is_open = True
    address = ""
    gap_us_max = FALLBACK_US

    def __init__(
        self, wakeups: IdleWakeups, inner: WakeupListener, channels: Collection[str]
    ) -> None:
        self.channels = sorted(channels)
        self._wakeups = wakeups
        self._inner = inner
        self._is_said = False
        self._polls_again = False

    def wait(self, timeout_s: float) -> None:
        """Wait until a wake-up arrives, the worker's event is set, or the timeout.

        Returns at once after it has said that the worker is idle: jobs that were stored before
        that sent no message, so the worker polls once more.
        """
        if not self._is_said and timeout_s > 0:
            with suppress(DuelineError, *self._wakeups.lost):
                self._polls_again = self._wakeups.say_idle(self.channels)
                self._is_said = True
                if self._polls_again:
                    return
        self._inner.wait(timeout_s)

    def take(self) -> Sequence[Wakeup]:
        """Return the wake-ups since the last call."""
        heard = self._inner.take()
        if heard:
            self._is_said = False
        elif self._polls_again:
            heard = [Wakeup(self.channels[0])]
        self._polls_again = False
        return heard

    def missed(self) -> None:
        """Do nothing: wake-ups that are lost are rare."""

    def close(self) -> None:
        """Stop listening."""
        self._wakeups.forget(self)
        self._inner.close()
