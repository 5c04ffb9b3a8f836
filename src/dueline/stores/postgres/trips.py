"""Statements in fewer trips to the server than the driver's calls take.

A short transaction is one message with BEGIN, its number and a statement, and then COMMIT. The
number comes back before the commit is sent, so that its outcome can be read if the answer is lost.
A trip has a time limit: a connection without an answer by then is closed, as one that was cut.
"""

import select
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Any, Final

import psycopg
from psycopg import Connection
from psycopg.adapt import Transformer
from psycopg.errors import error_from_result
from psycopg.pq import ExecStatus, Format
from psycopg.pq.abc import PGresult

from dueline.stores.postgres.arrays import ARRAYS, packed

BEGIN: Final = b"BEGIN ISOLATION LEVEL READ COMMITTED"
COMMIT: Final = b"COMMIT"
ROLLBACK: Final = b"ROLLBACK"
NUMBER: Final = b"SELECT pg_current_xact_id()::text"

_BOOLEAN, _BYTEA, _BIGINT, _TEXT = 16, 17, 20, 25
"""Type numbers (pg_type.dat), which never change."""

_names = count()

_FAILED: Final = (ExecStatus.FATAL_ERROR, ExecStatus.PIPELINE_ABORTED, ExecStatus.BAD_RESPONSE)

Statement = tuple[bytes, Sequence[Any]]
"""A statement with $1, $2, …, and its values: integers, texts, bytes, flags, None, and lists."""


class NoAnswerError(psycopg.OperationalError):  # type: ignore[misc]  # the driver may be absent
    """The server did not answer in time; the connection was closed."""


class QuickConnection(Connection):  # type: ignore[misc]  # the driver may be absent
    """A connection with statements prepared by this module, and a time limit of its trips.

    Attributes:
      prepared: Names of the prepared statements, by their text and the types of their values.
      is_awaited: Whether the results of a statement have not been read yet.
      is_quick: Whether these statements may be used: there is no pooler.
      recovery: When the server had last recovered from a crash as it was opened, in microseconds.
      used_us: When it was last given back, by the monotonic clock.
      timeout_s: Time limit of a trip in seconds; None for none.
      is_mute: It was closed because a trip took longer than that.
      session: The server's process that has its session, and when that began, in microseconds.
    """

    prepared: dict[tuple[bytes, tuple[int, ...]], bytes]
    is_awaited: bool
    is_quick: bool
    recovery: int
    used_us: int
    timeout_s: float | None = None
    is_mute: bool = False
    session: tuple[int, int]

    def wait(self, steps: Any, *args: Any, **named: Any) -> Any:  # noqa: ANN401  (the driver's)
        """Wait for the end of a call of the driver, within the time limit."""
        if self.timeout_s is not None:
            steps = self._within_limit(steps)
        return super().wait(steps, *args, **named)

    def give_up(self) -> NoAnswerError:
        """Close the connection after its time limit; return the error that says so."""
        self.is_mute = True
        self.close()
        return NoAnswerError(f"no answer within {self.timeout_s:g} s")

    def _within_limit(self, steps: Any) -> Generator[Any, Any, Any]:  # noqa: ANN401
        """Pass the driver's steps on; the driver wakes them every tenth of a second."""
        until_s = deadline_s(self)
        try:
            wanted = next(steps)
            while True:
                ready = yield wanted
                if not ready and time.monotonic() > until_s:
                    raise self.give_up()
                wanted = steps.send(ready)
        except StopIteration as end:
            return end.value


def deadline_s(connection: QuickConnection) -> float:
    """Return the monotonic time by which a trip that begins now must end, in seconds."""
    timeout_s = connection.timeout_s
    return float("inf") if timeout_s is None else time.monotonic() + timeout_s


@contextmanager
def unlimited(connection: Connection) -> Iterator[None]:
    """Set no time limit while the block runs: for statements of callers."""
    before = getattr(connection, "timeout_s", None)
    if before is not None:
        connection.timeout_s = None
    try:
        yield
    finally:
        if before is not None:
            connection.timeout_s = before


class Results:
    """Reads the rows of results of a connection."""

    def __init__(self, connection: QuickConnection) -> None:
        self._transformer = Transformer(connection)

    def rows(self, result: PGresult) -> list[tuple[Any, ...]]:
        """Return all rows."""
        if not result.ntuples:
            return []
        self._transformer.set_pgresult(result, format=Format.BINARY)
        rows: list[tuple[Any, ...]] = self._transformer.load_rows(0, result.ntuples, tuple)
        return rows


def run(connection: QuickConnection, statements: Sequence[Statement]) -> list[PGresult]:
    """Run statements in one trip, and return their results.

    Raises:
      psycopg.Error: One failed, and those after it were not run; or the connection was lost.
    """
    until_s = deadline_s(connection)
    prepared = _send(connection, statements, until_s)
    return _receive(connection, until_s)[prepared:]


def run_each(
    connection: QuickConnection, statements: Sequence[Statement]
) -> tuple[list[PGresult | None], psycopg.Error | None]:
    """Run statements in one trip, each as a transaction of its own.

    Returns:
      The results, which are sent before the commits, or None; and what was the first to fail. A
      result whose commit was lost is among them.
    """
    results: list[list[PGresult]] = [[] for _ in statements]
    prepared, error = 0, None
    until_s = deadline_s(connection)
    try:
        prepared = _send(connection, statements, until_s, apart=True)
        for answers in results:
            if failed := _take(connection, answers, until_s):
                error = error or failed
                answers.clear()
        connection.pgconn.exit_pipeline_mode()
    except psycopg.Error as lost:
        connection.close()
        error = error or lost
    except BaseException:
        connection.close()  # its state is not known
        raise
    if error is not None:
        connection.prepared.clear()  # some may not be prepared
    results[0] = results[0][prepared:]
    return [answers[0] if answers else None for answers in results], error


def is_silent(connection: QuickConnection) -> bool:
    """Return whether the server has sent nothing to an idle connection, such as its end."""
    poll = select.poll()
    poll.register(connection.pgconn.socket, select.POLLIN)
    return not poll.poll(0)


def send(connection: QuickConnection, statement: Statement) -> None:
    """Send a statement whose result is not needed; see `settle`."""
    _send(connection, [statement], deadline_s(connection))
    connection.is_awaited = True


def settle(connection: QuickConnection) -> None:
    """Wait for the end of a statement that was sent, whether or not it succeeded."""
    if connection.is_awaited:
        connection.is_awaited = False
        _receive(connection, deadline_s(connection))


def _send(
    connection: QuickConnection,
    statements: Sequence[Statement],
    until_s: float,
    *,
    apart: bool = False,
) -> int:
    """Send statements, in one transaction or each apart; return how many were prepared before."""
    server = connection.pgconn
    server.enter_pipeline_mode()
    before = len(connection.prepared)
    ready: list[tuple[bytes, list[bytes | None]]] = []
    for text, bound in statements:
        values = [_encoded(value) for value in bound]
        kinds = tuple([kind for kind, _ in values])
        name = connection.prepared.get((text, kinds))
        if name is None:
            name = connection.prepared[text, kinds] = b"dueline_%d" % next(_names)
            server.send_prepare(name, text, kinds)
        ready.append((name, [value for _, value in values]))
    for name, binary in ready:
        formats = [Format.BINARY] * len(binary)
        server.send_query_prepared(name, binary, formats, Format.BINARY)
        if apart:
            server.send_flush_request()
            server.pipeline_sync()
    if not apart:
        server.pipeline_sync()
    poll = select.poll()
    poll.register(server.socket, select.POLLIN | select.POLLOUT)
    while server.flush():
        _await(connection, poll, until_s)
        server.consume_input()  # the server may wait for room for its answers
    return len(connection.prepared) - before


def _encoded(value: object) -> tuple[int, bytes | None]:
    """Return the type number of a value, 0 for that which the statement gives it, and its bytes."""
    kind = type(value)
    if kind is int:
        return _BIGINT, value.to_bytes(8, signed=True)  # type: ignore[attr-defined]
    if kind is bytes:
        return _BYTEA, value  # type: ignore[return-value]
    if kind is str:
        return _TEXT, value.encode()  # type: ignore[attr-defined]
    if kind is list:
        array = packed(value)  # type: ignore[arg-type]
        return ARRAYS[type(array)], array
    if kind is bool:
        return _BOOLEAN, b"\1" if value else b"\0"
    assert value is None, kind
    return 0, None


def _receive(connection: QuickConnection, until_s: float) -> list[PGresult]:
    results: list[PGresult] = []
    try:
        error = _take(connection, results, until_s)
        connection.pgconn.exit_pipeline_mode()
    except BaseException:
        connection.close()  # its state is not known
        raise
    if error is not None:
        connection.prepared.clear()  # some may not be prepared
        raise error
    return results


def _take(
    connection: QuickConnection, results: list[PGresult], until_s: float
) -> psycopg.Error | None:
    """Add the results up to the end of a transaction; return the first error among them."""
    error: psycopg.Error | None = None
    while (result := _next(connection, until_s)).status != ExecStatus.PIPELINE_SYNC:
        if result.status in _FAILED:
            error = error or error_from_result(result, "utf-8")
        else:
            results.append(result)
    return error


def _next(connection: QuickConnection, until_s: float) -> PGresult:
    """Return the next result; waits without holding Python's lock."""
    server = connection.pgconn
    nothing = 0
    poll = select.poll()
    poll.register(server.socket, select.POLLIN)
    while True:
        while server.is_busy():
            _await(connection, poll, until_s)
            server.consume_input()
        result = server.get_result()
        if result is not None:
            return result
        nothing += 1  # between the results of two statements
        if nothing > 1:
            raise psycopg.OperationalError("The connection was lost.")


def _await(connection: QuickConnection, poll: select.poll, until_s: float) -> None:
    """Wait until the connection is ready.

    Raises:
      NoAnswerError: It is not by then; it was closed.
    """
    left_s = until_s - time.monotonic()
    wait_ms = None if left_s == float("inf") else max(0.0, left_s * 1000)
    if not poll.poll(wait_ms):
        raise connection.give_up()
