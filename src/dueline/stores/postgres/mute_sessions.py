"""Ends sessions on the server whose connections were given up because no answer came."""

from collections import deque
from contextlib import suppress
from typing import Final

import psycopg

from dueline.stores.postgres.trips import QuickConnection

_END: Final = (
    "SELECT pg_terminate_backend(a.pid, %s) FROM unnest(%s::integer[], %s::bigint[])"
    " AS s (pid, began) JOIN pg_stat_activity AS a ON a.pid = s.pid"
    " AND (extract(epoch FROM a.backend_start) * 1000000)::bigint = s.began"
)
SESSION: Final = (
    "(SELECT (extract(epoch FROM backend_start) * 1000000)::bigint"
    " FROM pg_stat_get_activity(pg_backend_pid()))"
)
"""When the present session began: with its process it is the session's name on a server."""

WAIT_MS: Final = 1000
"""Maximum time to wait for the end of a session, in milliseconds."""


class MuteSessions:
    """The sessions of one process that may still do what they were asked, and hold locks.

    The next connection ends them before it is used. So a call that is repeated does not meet the
    first one, and no row stays locked by a client that has gone on.
    """

    def __init__(self) -> None:
        self._sessions: deque[tuple[int, int]] = deque()

    def __bool__(self) -> bool:
        return bool(self._sessions)

    def add(self, connection: QuickConnection) -> None:
        """Note the session of a connection that was closed without an answer."""
        if connection.is_quick and connection.session[1]:
            self._sessions.append(connection.session)

    def end(self, connection: QuickConnection) -> None:
        """End the sessions, by a new connection.

        Raises:
          psycopg.Error: That connection was lost, too.
        """
        sessions = list(self._sessions)
        if not sessions:
            return
        processes, began = map(list, zip(*sessions, strict=True))
        try:
            connection.execute(_END, (WAIT_MS, processes, began), prepare=False).fetchall()
        except psycopg.Error:
            if connection.closed:
                raise  # the next connection tries again
        for session in sessions:
            with suppress(ValueError):  # another thread has ended it, too
                self._sessions.remove(session)
