"""Wakes the workers of a store by LISTEN and NOTIFY.

Commits with NOTIFY take one lock of the whole server, so a producer only sends one where a worker
has said that it is idle: the worker puts its channels into the table `idle` and polls once more.
The first producer removes them and notifies, after the commit of its insert but in the same trip.
A process has one connection that listens, for all its workers. Behind a pooler no process listens,
and workers poll.
"""

import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from functools import lru_cache
from hashlib import sha256
from typing import Any, Final

import psycopg

from dueline.core.errors import DuelineError
from dueline.core.lane import Lane
from dueline.core.wakeup import NoWakeups, Wakeup, read_wakeup
from dueline.stores.idle_wakeups import PATIENCE_S, RECONNECT_S, IdleWakeups, Notified
from dueline.stores.postgres.connection import Connections
from dueline.stores.postgres.database import Executor
from dueline.stores.postgres.trips import QuickConnection, unlimited

PAYLOAD_BYTES_MAX: Final = 7900
"""Maximum length of a message; PostgreSQL allows less than 8000 bytes."""

_SAY_IDLE: Final = (
    "INSERT INTO @idle (channel) SELECT unnest(%s::text[]) ON CONFLICT (channel) DO NOTHING"
)
_NOTIFY_ONE: Final = (
    "DELETE FROM @idle WHERE channel = %s RETURNING pg_notify('{channel}', %s::text)"
)
_NOTIFY: Final = (
    "WITH w AS (SELECT * FROM unnest(%s::text[], %s::text[]) AS w (channel, payload)),"
    " gone AS (DELETE FROM @idle WHERE ctid = ANY(ARRAY(SELECT ctid FROM @idle"
    " WHERE channel IN (SELECT channel FROM w) FOR UPDATE SKIP LOCKED)) RETURNING channel)"
    " SELECT pg_notify('{channel}', w.payload) FROM gone JOIN w ON w.channel = gone.channel"
)

StepBack = Callable[[Iterable[tuple[Lane, int]]], None]


class NotifyWakeups(IdleWakeups):
    """Sends notifications, and passes those that come to the workers of this process.

    Args:
      connections: The store's connections.
      notified: What inserts have sent themselves.
      step_back: Called with the lane and the due time of a job that another process has stored.
    """

    lost = (psycopg.Error,)

    def __init__(self, connections: Connections, notified: Notified, step_back: StepBack) -> None:
        super().__init__()
        self._connections = connections
        self._notified = notified
        self._step_back = step_back
        self._channel = channel_of(connections.address.schema)

    def wake(self, wakeups: Collection[Wakeup]) -> None:
        """Notify the workers that are idle."""
        if self._notified.cover(wakeups):
            return
        with suppress(DuelineError, psycopg.Error):  # a wake-up may be lost
            self._connections.send(*notify_idle(wakeups, self._connections.address.schema))

    def say_idle(self, channels: Sequence[str]) -> bool:
        """Ask the next producer to notify; return whether that was not asked before."""
        return self._connections.read(lambda database: database.execute(_SAY_IDLE, (channels,)) > 0)

    def _has_started(self) -> bool:
        """Start the thread of this process; not behind a pooler, or without a server."""
        try:
            connection = self._open()
        except (DuelineError, psycopg.Error):
            return False
        if connection is None:
            return False
        threading.Thread(
            target=self._loop, args=(connection,), name="dueline-wakeups", daemon=True
        ).start()
        return True

    def _open(self) -> QuickConnection | None:
        connection = self._connections.connect()
        if not connection.is_quick:  # a pooler would give the session to others
            connection.close()
            return None
        connection.execute(f"LISTEN {self._channel}".encode(), prepare=False)
        return connection

    def _loop(self, connection: QuickConnection | None) -> None:
        while self._listeners:
            try:
                connection = connection or self._open()
                if connection is None:  # a pooler since then
                    self._lose()
                    continue
                self._hear(connection)
            except (DuelineError, psycopg.Error):
                if connection is not None:
                    self._connections.lose(connection)
                connection = None
                self._lose()
        if connection is not None:
            connection.close()

    def _hear(self, connection: QuickConnection) -> None:
        """Pass notifications on; ask after a silence whether the server is still there.

        Raises:
          psycopg.Error: It is not.
        """
        heard_s = time.monotonic()
        while self._listeners:
            with unlimited(connection):
                for message in connection.notifies(timeout=PATIENCE_S, stop_after=1):
                    heard_s = time.monotonic()
                    self._pass_on(message.payload)
            connection.timeout_s = self._connections.timeout_s
            if time.monotonic() - heard_s > self._connections.timeout_s:
                connection.execute("SELECT 1", prepare=False)
                heard_s = time.monotonic()

    def _lose(self) -> None:
        """Have the workers poll while messages may be lost."""
        time.sleep(RECONNECT_S)
        self._wake_all()

    def _pass_on(self, payload: str) -> None:
        wakeup = read_wakeup(payload.encode())
        if wakeup is not None:
            if wakeup.lane is not None:
                self._step_back([(wakeup.lane, wakeup.at_us)])
            self._local.wake([wakeup])


class CommitWakeups(NoWakeups):
    """Sends notifications with the commit of a caller's transaction.

    Always, because a worker may become idle before the commit.
    """

    def __init__(self, transaction: Executor, schema: str) -> None:
        self._transaction = transaction
        self._channel = channel_of(schema)

    def wake(self, wakeups: Collection[Wakeup]) -> None:
        """Notify the workers when the transaction commits."""
        payloads = list(map(_payload, wakeups))
        statement = "SELECT pg_notify(%s, payload) FROM unnest(%s::text[]) AS payload"
        self._transaction.write(
            lambda database: database.fetch(statement, (self._channel, payloads))
        )


@lru_cache
def channel_of(schema: str) -> str:
    """Return the channel of a schema's notifications: an identifier of up to 63 bytes."""
    return f"dueline_{sha256(schema.encode()).hexdigest()[:24]}"


def notify_idle(wakeups: Collection[Wakeup], schema: str) -> tuple[str, Sequence[Any]]:
    """Return the statement that notifies the workers that are idle, and its values."""
    channels, payloads = [wakeup.channel for wakeup in wakeups], list(map(_payload, wakeups))
    if len(channels) == 1:
        return _NOTIFY_ONE.format(channel=channel_of(schema)), channels + payloads
    return _NOTIFY.format(channel=channel_of(schema)), [channels, payloads]


def _payload(wakeup: Wakeup) -> str:
    return wakeup.to_bytes(PAYLOAD_BYTES_MAX).decode()
