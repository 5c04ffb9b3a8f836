"""Statements in fewer trips to the server than the driver's calls take.

A short transaction is one message with BEGIN, its number and a statement, and then COMMIT. The
number comes back before the commit is sent, so that its outcome can be read if the answer is lost.
"""

import select
from collections.abc import Sequence
from itertools import count
from typing import Final

import psycopg
from psycopg import Connection
from psycopg.errors import error_from_result
from psycopg.pq import ExecStatus, Format
from psycopg.pq.abc import PGconn, PGresult

BEGIN: Final = b"BEGIN"
NUMBER: Final = b"SELECT pg_current_xact_id()::text"

_names = count()

_FAILED: Final = (ExecStatus.FATAL_ERROR, ExecStatus.PIPELINE_ABORTED, ExecStatus.BAD_RESPONSE)

Statement = tuple[bytes, Sequence[bytes]]
"""A statement with $1, $2, …, and its values in their binary form, of types that it casts to."""


class QuickConnection(Connection):  # type: ignore[misc]  # the driver may be absent
    """A connection with statements prepared by this module.

    Attributes:
      prepared: Names of the prepared statements, by their text.
      is_awaited: Whether the results of a statement have not been read yet.
    """

    prepared: dict[bytes, bytes]
    is_awaited: bool


def run(connection: QuickConnection, statements: Sequence[Statement]) -> list[PGresult]:
    """Run statements in one trip, and return their results.

    Raises:
      psycopg.Error: One failed, and those after it were not run; or the connection was lost.
    """
    _send(connection, statements)
    return _receive(connection)


def send(connection: QuickConnection, statement: Statement) -> None:
    """Send a statement whose result is not needed; see `settle`."""
    _send(connection, [statement])
    connection.is_awaited = True


def settle(connection: QuickConnection) -> None:
    """Wait for the end of a statement that was sent, whether or not it succeeded."""
    if connection.is_awaited:
        connection.is_awaited = False
        _receive(connection)


def _send(connection: QuickConnection, statements: Sequence[Statement]) -> None:
    server = connection.pgconn
    missing = [text for text, _ in statements if text not in connection.prepared]
    server.enter_pipeline_mode()
    for text in missing:
        name = b"dueline_%d" % next(_names)
        server.send_prepare(name, text)
        connection.prepared[text] = name
    for text, values in statements:
        server.send_query_prepared(
            connection.prepared[text],
            values,
            [Format.BINARY] * len(values),
            Format.BINARY,
        )
    server.pipeline_sync()
    poll = select.poll()
    poll.register(server.socket, select.POLLIN | select.POLLOUT)
    while server.flush():
        poll.poll()
        server.consume_input()  # the server may wait for room for its answers


def _receive(connection: QuickConnection) -> list[PGresult]:
    server = connection.pgconn
    found: list[PGresult] = []
    error: psycopg.Error | None = None
    try:
        while (result := _next(server)).status != ExecStatus.PIPELINE_SYNC:
            if result.status in _FAILED:
                error = error or error_from_result(result, "utf-8")
            elif result.status == ExecStatus.TUPLES_OK:
                found.append(result)
        server.exit_pipeline_mode()
    except BaseException:
        connection.close()  # its state is not known
        raise
    if error is not None:
        connection.prepared.clear()  # some may not be prepared
        raise error
    return found


def _next(server: PGconn) -> PGresult:
    """Return the next result; waits without holding Python's lock."""
    nothing = 0
    poll = select.poll()
    poll.register(server.socket, select.POLLIN)
    while True:
        while server.is_busy():
            poll.poll()
            server.consume_input()
        result = server.get_result()
        if result is not None:
            return result
        nothing += 1  # between the results of two statements
        if nothing > 1:
            raise psycopg.OperationalError("The connection was lost.")
