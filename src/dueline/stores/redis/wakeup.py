"""Wakes the workers of a store by publish and subscribe.

A producer only publishes where a worker has said that it is idle: the worker puts its channels into
the set `idle` and polls once more. The first producer removes them and publishes, in the call of
its insert. A process has one connection that listens, for all its workers.
"""

import threading
import time
from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import Any

from dueline.core.errors import DuelineError
from dueline.core.wakeup import Wakeup, read_wakeup
from dueline.stores.idle_wakeups import PATIENCE_S, RECONNECT_S, IdleWakeups, Notified
from dueline.stores.redis.connection import Connections
from dueline.stores.redis.links import LOST
from dueline.stores.redis.operations import WAKEUP_BYTES_MAX


class ChannelWakeups(IdleWakeups):
    """Publishes wake-ups, and passes those that come to the workers of this process.

    Args:
      connections: The store's connections.
      notified: What inserts have sent themselves.
    """

    lost = LOST

    def __init__(self, connections: Connections, notified: Notified) -> None:
        super().__init__()
        self._connections = connections
        self._notified = notified

    def wake(self, wakeups: Collection[Wakeup]) -> None:
        """Notify the workers that are idle."""
        if self._notified.cover(wakeups):
            return
        arguments = []
        for wakeup in wakeups:
            arguments += [wakeup.channel.encode(), wakeup.to_bytes(WAKEUP_BYTES_MAX)]
        with suppress(DuelineError, *LOST):  # a wake-up may be lost
            self._connections.read("wake", *arguments)

    def say_idle(self, channels: Sequence[str]) -> bool:
        """Ask the next producer to notify; return whether that was not asked before."""
        named = [channel.encode() for channel in channels]
        return bool(self._connections.read("say_idle", *named))

    def _has_started(self) -> bool:
        threading.Thread(target=self._loop, name="dueline-wakeups", daemon=True).start()
        return True

    def _loop(self) -> None:
        listeners = self._listeners
        while listeners:
            driver = None
            try:
                driver = self._connections.subscribe(self._connections.channel())
                self._wake_all()  # some messages were missed
                self._hear(driver, listeners)
            except (DuelineError, *LOST):
                if listeners:
                    time.sleep(RECONNECT_S)
            finally:
                if driver is not None:
                    driver.disconnect()

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
