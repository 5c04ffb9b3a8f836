"""Wakes the workers of a store by publish and subscribe.

A producer only publishes where a worker has said that it is idle: the worker puts its channels into
the set `idle` and polls once more. The first producer removes them and publishes, in the call of
its insert. A process has one connection that listens, for all its workers.
"""

import os
import threading
import time
from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import Any, Final

from dueline.core.errors import DuelineError
from dueline.core.wakeup import LocalWakeups, Signal, Wakeup, WakeupListener, read_wakeup
from dueline.stores.redis.connection import LOST, Connections
from dueline.stores.redis.operations import WAKEUP_BYTES_MAX

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


class ChannelWakeups:
    """Publishes wake-ups, and passes those that come to the workers of this process.

    Args:
      connections: The store's connections.
      notified: What inserts have sent themselves.
    """

    def __init__(self, connections: Connections, notified: Notified) -> None:
        self._connections = connections
        self._notified = notified
        self._local = LocalWakeups()
        self._listeners: list[IdleListener] = []
        self._process = 0
        self._guard = threading.Lock()

    def wake(self, wakeups: Collection[Wakeup]) -> None:
        """Notify the workers that are idle."""
        sent, self._notified.wakeups = self._notified.wakeups, ()
        if list(wakeups) == list(sent):
            return
        arguments = []
        for wakeup in wakeups:
            arguments += [wakeup.channel.encode(), wakeup.to_bytes(WAKEUP_BYTES_MAX)]
        with suppress(DuelineError, *LOST):  # a wake-up may be lost
            self._connections.read("wake", *arguments)

    def listen(self, channels: Collection[str], wakeup: Signal) -> WakeupListener:
        """Open a listener."""
        listener = IdleListener(self, self._local.listen(channels, wakeup), channels)
        with self._guard:
            if self._process != os.getpid():  # the parent's thread is not in this process
                self._process, self._listeners = os.getpid(), []
            self._listeners.append(listener)
            if len(self._listeners) == 1:
                threading.Thread(target=self._loop, name="dueline-wakeups", daemon=True).start()
        return listener

    def forget(self, listener: "IdleListener") -> None:
        """Remove a listener; the thread ends after the last one."""
        with self._guard, suppress(ValueError):
            self._listeners.remove(listener)

    def say_idle(self, channels: Sequence[str]) -> bool:
        """Ask the next producer to notify; return whether that was not asked before."""
        named = [channel.encode() for channel in channels]
        return bool(self._connections.read("say_idle", *named))

    def _loop(self) -> None:
        listeners = self._listeners
        while listeners:
            driver = None
            try:
                driver = self._connections.subscribe(self._connections.channel())
                self._local.wake([Wakeup(name) for name in self._channels()])  # some were missed
                self._hear(driver, listeners)
            except (DuelineError, *LOST):
                if listeners:
                    time.sleep(RECONNECT_S)
            finally:
                if driver is not None:
                    driver.disconnect()

    def _channels(self) -> set[str]:
        return {name for listener in list(self._listeners) for name in listener.channels}

    def _hear(self, driver: Any, listeners: Sequence[object]) -> None:  # noqa: ANN401
        """Pass messages on; ask after a silence whether the server is still there."""
        heard_s, has_asked = time.monotonic(), False
        while listeners:
            if driver.can_read(timeout=PATIENCE_S):
                message = driver.read_response(disable_decoding=True)
                heard_s, has_asked = time.monotonic(), False
                if message[0] == b"message" and (wakeup := read_wakeup(message[2])):
                    self._local.wake([wakeup])
            elif time.monotonic() - heard_s > self._connections.timeout_s:
                if has_asked:
                    raise ConnectionError("no answer")
                driver.send_command("PING")
                heard_s, has_asked = time.monotonic(), True


class IdleListener:
    """The listener of one worker, which says that it is idle before it waits."""

    is_open = True
    address = ""

    def __init__(
        self, wakeups: ChannelWakeups, inner: WakeupListener, channels: Collection[str]
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
            with suppress(DuelineError, *LOST):
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

    def close(self) -> None:
        """Stop listening."""
        self._wakeups.forget(self)
        self._inner.close()
