"""Connections to PostgreSQL, and transactions on them."""

import os
import random
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from typing import Any, Final, Protocol, TypeVar

import psycopg
from psycopg import AsyncConnection, Connection, Cursor
from psycopg.pq import Format, TransactionStatus
from psycopg.pq.abc import PGresult
from psycopg.rows import tuple_row

from dueline.core.clock import SECOND_US, Clock
from dueline.core.errors import BadInput, ConfigError, SchemaMismatch, StoreUnavailable, Unknown
from dueline.core.store import BESIDE_A_TRANSACTION
from dueline.stores.postgres import trips
from dueline.stores.postgres.address import Address
from dueline.stores.postgres.arrays import packed, register
from dueline.stores.postgres.errors import REPEATED, translated
from dueline.stores.postgres.trips import QuickConnection, Results, Statement

T = TypeVar("T")

Query = tuple[str, Sequence[Any]]
"""A statement, and its values."""

SCHEMA_VERSION: Final = 1
VERSION_MIN: Final = 140000

IDLE_MAX: Final = 8
"""Maximum number of idle connections that a process keeps."""

ATTEMPTS: Final = 20
"""Maximum number of attempts of a transaction that others roll back."""

RESOLVE_US: Final = 5 * SECOND_US
"""Maximum time in which the outcome of a lost commit is read, in microseconds."""

LEAST: Final = -(2**63)
GREATEST: Final = 2**63 - 1
NOW_US: Final = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
"""The server's time; now() is the start of the transaction, which may be the caller's."""

_SETTINGS: Final = {
    # Plans are the same for all values, and statistics of an empty table must not choose them.
    "plan_cache_mode": "force_generic_plan",
    # Claims and heads read an index up to the first rows that fit, not whole lanes.
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    # Where an index has the order that is asked for, it is the right one; see jobs.py.
    "enable_sort": "off",
    "jit": "off",
}
_inherited: list[Connection] = []
"""Connections of a parent process: never used, and never closed, in a forked child."""


class Database:
    """Statements on one connection; `@` before a table's name stands for the schema.

    On connections of the store a statement is one trip, with BEGIN if it is the first one; on those
    of callers, and behind a pooler, statements are calls of the driver.

    Attributes:
      apart: Runs work in a transaction of its own that commits at once. None if this transaction
        is short, so others may wait for its end.
      number: The number of the transaction that it began; empty before its first statement.

    Args:
      cursor: Runs the statements; by default a new cursor of the connection.
    """

    def __init__(
        self,
        connection: Connection | AsyncConnection,
        schema: str,
        apart: "Callable[[Callable[[Database], object]], None] | None" = None,
        *,
        cursor: Any = None,  # noqa: ANN401
    ) -> None:
        self.connection = connection
        self.apart = apart
        self.number = ""
        self._schema = schema
        self._begins = False
        self._quick: QuickConnection | None = None
        if isinstance(connection, QuickConnection) and connection.is_quick:
            self._quick = connection
            self._results = Results(connection)
            return
        if cursor is None:  # not by the connection's own factory, which a caller may have set
            cursor = Cursor(connection, row_factory=tuple_row)
            cursor.format = Format.BINARY
        register(cursor)
        self._cursor = cursor

    def begin(self) -> None:
        """Begin a transaction: with the first statement, if that saves a trip."""
        if self._quick is not None:
            self._begins = True
        else:
            assert isinstance(self.connection, Connection)
            self.number = _begin(self.connection)

    def fetch(self, statement: str, bound: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Run a query and return all its rows."""
        if self._quick is not None:
            return self._results.rows(self._run_quickly(self._quick, statement, bound))
        rows: list[tuple[Any, ...]] = self._run(statement, bound).fetchall()
        return rows

    def first(self, statement: str, bound: Sequence[Any] = ()) -> tuple[Any, ...] | None:
        """Run a query and return its first row."""
        return next(iter(self.fetch(statement, bound)), None)

    def execute(self, statement: str, bound: Sequence[Any] = ()) -> int:
        """Run a statement and return the number of rows that it changed."""
        if self._quick is not None:
            return self._run_quickly(self._quick, statement, bound).command_tuples or 0
        return int(self._run(statement, bound).rowcount)

    def _run(self, statement: str, bound: Sequence[Any]) -> Any:  # noqa: ANN401
        values = [packed(one) if type(one) is list else one for one in bound]
        return self._cursor.execute(_named(statement, self._schema), values)

    def _run_quickly(
        self, connection: QuickConnection, statement: str, bound: Sequence[Any]
    ) -> PGresult:
        text = numbered(statement, self._schema)
        if not self._begins:
            return trips.run(connection, [(text, bound)])[0]
        self._begins, self.number = False, "unknown"  # there is something to roll back
        _, number, found = trips.run(
            connection, [(trips.BEGIN, ()), (trips.NUMBER, ()), (text, bound)]
        )
        self.number = (number.get_value(0, 0) or b"").decode()
        return found


@lru_cache(maxsize=1000)
def _named(statement: str, schema: str) -> bytes:
    return statement.replace("@", f"{schema}.").replace("%s", "%b").encode()  # binary values


@lru_cache(maxsize=1000)
def numbered(statement: str, schema: str) -> bytes:
    """Return a statement with the schema's name, and with $1, $2, … for its values."""
    head, *rest = statement.replace("@", f"{schema}.").split("%s")
    return "".join([head, *(f"${number}{text}" for number, text in enumerate(rest, 1))]).encode()


class Executor(Protocol):
    """Runs a store's calls: on connections of its own, or in an open transaction."""

    def read(self, work: Callable[[Database], T]) -> T: ...  # noqa: D102
    def write(self, work: Callable[[Database], T]) -> T: ...  # noqa: D102
    def write_then_fetch(  # noqa: D102
        self, work: Callable[[Database], tuple[T, Query]]
    ) -> tuple[T, list[tuple[Any, ...]] | None]: ...


class Connections:
    """The connections of one process to one database; each thread uses one at a time."""

    def __init__(self, address: Address, clock: Clock) -> None:
        self.address = address
        self._clock = clock
        self._idle: deque[QuickConnection] = deque()
        self._process = os.getpid()
        self._jitter = random.Random()
        self._thread = threading.local()

    def close(self) -> None:
        """Close the idle connections."""
        self._forget_parent()
        while self._idle:
            self._idle.pop().close()

    def read(self, work: Callable[[Database], T]) -> T:
        """Run statements that only read, each as a transaction of its own."""
        return self._patiently(lambda connection: work(self._database(connection)))

    def write(self, work: Callable[[Database], T]) -> T:
        """Run `work` as one transaction, all or nothing; it may be repeated.

        Raises:
          BadInput: This thread has another transaction open.
          StoreUnavailable: Nothing was written.
          Unknown: The connection was lost at the commit, and the server did not say in time
            whether it happened.
        """
        self._refuse_beside()
        return self._write(work)

    def send(self, statement: str, bound: Sequence[Any]) -> None:
        """Send a statement whose result is not needed, and that may be lost."""
        connection = self._take()
        try:
            if connection.is_quick:
                trips.send(connection, (numbered(statement, self.address.schema), bound))
            else:
                self._database(connection).fetch(statement, bound)
        finally:
            self._give_back(connection)

    def write_then(self, write: Query, then: Query | None) -> tuple[tuple[Any, ...] | None, bool]:
        """Run a statement as a transaction, and another one after its commit, in one trip.

        Args:
          write: The first one; the last value of its only row is the number of its transaction.
          then: The other one, which may fail or be lost.

        Returns:
          The row, or None if nothing was written or that takes more trips: use `write` then. And
          whether the other statement was run.

        Raises: As `write`.
        """
        self._refuse_beside()
        connection = self._take()
        try:
            if not connection.is_quick or not trips.is_silent(connection):
                return None, False
            results = Results(connection)
            both = [self._numbered(one) for one in (write, then) if one]
            (written, *after), error = trips.run_each(connection, both)
        finally:
            self._give_back(connection)
        if written is None:
            if connection.closed:
                raise self._unknown() from error
            return None, False
        (row,) = results.rows(written)
        is_run = after != [] and after[0] is not None
        if connection.closed and not is_run:
            is_committed = self._is_committed(str(row[-1]))
            if is_committed is None:
                raise self._unknown() from error
            if not is_committed:
                return None, False
        return row, is_run

    def write_then_fetch(
        self, work: Callable[[Database], tuple[T, Query]]
    ) -> tuple[T, list[tuple[Any, ...]] | None]:
        """Run `work` as `write` does, and a query after the commit, in its trip.

        Args:
          work: Returns a result and the query.

        Returns:
          The result, and the rows of the query; None if it failed.
        """
        self._refuse_beside()

        def transact(connection: QuickConnection) -> tuple[T, list[tuple[Any, ...]] | None]:
            number, (result, query) = self._run(connection, work)
            return result, self._commit(connection, number, query)

        return self._patiently(transact)

    def _write(self, work: Callable[[Database], T]) -> T:
        def transact(connection: QuickConnection) -> T:
            number, result = self._run(connection, work)
            if number:
                self._commit(connection, number)
            return result

        return self._patiently(transact)

    def _run(self, connection: QuickConnection, work: Callable[[Database], T]) -> tuple[str, T]:
        """Run `work` in a new transaction; return also its number, empty if it never began."""
        database = self._database(connection)
        database.begin()
        try:
            result = work(database)
        except BaseException:
            if database.number:
                _roll_back(connection)
            raise
        return database.number, result

    def apart(self, work: Callable[[Database], object]) -> None:
        """Run `work` in a transaction of its own, also while this thread has one open."""
        self._write(work)

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """Hold a transaction open until the end of the block.

        Raises:
          BadInput: This thread has one open.
          StoreUnavailable: Nothing was committed.
          Unknown: It may or may not be committed.
        """
        self._refuse_beside()
        connection = self._patiently(_alive, keeps=True)
        self._thread.is_open = True
        try:
            number = _begin(connection)
            try:
                yield connection
            except BaseException:
                _roll_back(connection)
                raise
            if connection.info.transaction_status != TransactionStatus.INTRANS:
                _roll_back(connection)
                raise StoreUnavailable(
                    f"The transaction on {self.address} was rolled back before its end.",
                    hint="A statement failed, or the connection was lost.",
                )
            self._commit(connection, number)
        except psycopg.Error as error:
            raise translated(error, self.address) from error
        finally:
            self._thread.is_open = False
            self._give_back(connection)

    def _refuse_beside(self) -> None:
        if getattr(self._thread, "is_open", False):
            raise BadInput(BESIDE_A_TRANSACTION, hint="Use tx=, or call after the block.")

    def _database(self, connection: Connection) -> Database:
        return Database(connection, self.address.schema)

    def _patiently(self, work: Callable[[QuickConnection], T], *, keeps: bool = False) -> T:
        """Run `work` on a connection; repeat it if nothing was written and that may help.

        A transaction that another one rolled back is repeated with jitter. A connection that was
        lost before the commit is replaced once: the server may have restarted since the last call.
        """
        has_lost = False
        for attempt in range(ATTEMPTS):
            connection = self._take()
            try:
                result = work(connection)
            except REPEATED as error:
                self._give_back(connection)
                if attempt + 1 == ATTEMPTS:
                    raise translated(error, self.address) from error
                self._clock.sleep(0.001 * (attempt + 1) * (0.5 + self._jitter.random()))
                continue
            except psycopg.Error as error:
                is_lost = connection.closed
                self._give_back(connection)
                if is_lost and not has_lost:
                    has_lost = True
                    self._drop_idle()
                    continue
                raise translated(error, self.address) from error
            except BaseException:
                self._give_back(connection)
                raise
            if not keeps:
                self._give_back(connection)
            return result
        raise AssertionError("unreachable")

    def _commit(
        self, connection: QuickConnection, number: str, query: Query | None = None
    ) -> list[tuple[Any, ...]] | None:
        """Commit, and return the rows of a query after that; None without one, or if it failed."""
        lost: psycopg.Error | None = None
        if connection.is_quick:
            both = [(trips.COMMIT, ())] + ([self._numbered(query)] if query else [])
            (committed, *found), lost = trips.run_each(connection, both)
            if committed is not None:
                rows = [one for one in found if one is not None]
                return Results(connection).rows(rows[0]) if rows else None
        else:
            try:
                connection.execute("COMMIT", prepare=False)
            except psycopg.OperationalError as error:
                lost = error
            else:
                with suppress(psycopg.Error):
                    return self._database(connection).fetch(*query) if query else None
                return None
        assert lost is not None
        if not connection.closed:
            raise lost
        is_committed = self._is_committed(number)
        if is_committed is None:
            raise self._unknown() from lost
        if not is_committed:
            raise lost
        return None

    def _numbered(self, query: Query) -> Statement:
        return numbered(query[0], self.address.schema), query[1]

    def _unknown(self) -> Unknown:
        return Unknown(
            f"{self.address} did not say whether a transaction was committed.",
            hint="Repeat the call with the same ids.",
        )

    def _is_committed(self, number: str) -> bool | None:
        """Ask the server for the outcome of a transaction; None without an answer in time."""
        until_us = self._clock.monotonic_us() + RESOLVE_US
        self._drop_idle()
        while self._clock.monotonic_us() < until_us:
            with suppress(psycopg.Error, StoreUnavailable, ConfigError):
                connection = self._take()
                try:
                    row = connection.execute(
                        "SELECT pg_xact_status(%s::xid8)", (number,), prepare=False
                    ).fetchone()
                finally:
                    self._give_back(connection)
                status = row[0] if row else None
                if status != "in progress":
                    return None if status is None else bool(status == "committed")
            self._clock.sleep(0.05)
        return None

    def ended(self, number: str, process: int) -> bool:
        """Return whether a transaction was committed; end its session if it is still open.

        Raises:
          StoreUnavailable: The server does not answer, or the session does not end in time.
        """
        until_us = self._clock.monotonic_us() + RESOLVE_US
        while True:
            row = self.read(
                lambda database: database.first("SELECT pg_xact_status(%s::text::xid8)", (number,))
            )
            if row is None or row[0] != "in progress":
                return row is not None and bool(row[0] == "committed")
            if self._clock.monotonic_us() > until_us:
                raise StoreUnavailable(f"A session on {self.address} does not end.")
            self.read(lambda database: database.first(
                "SELECT pg_terminate_backend(%s::integer)", (process,)
            ))  # fmt: skip
            self._clock.sleep(0.01)

    def _take(self) -> QuickConnection:
        self._forget_parent()
        while True:
            try:
                connection = self._idle.pop()
            except IndexError:
                return self._open()
            with suppress(psycopg.Error):
                trips.settle(connection)
            if not connection.closed:
                return connection

    def _give_back(self, connection: QuickConnection) -> None:
        """Keep a connection that is idle, or ends a statement that was sent; close any other."""
        is_idle = (
            connection.is_awaited or connection.info.transaction_status == TransactionStatus.IDLE
        )
        if is_idle and len(self._idle) < IDLE_MAX and self._process == os.getpid():
            self._idle.append(connection)
        else:
            connection.close()

    def _drop_idle(self) -> None:
        while self._idle:
            with suppress(IndexError):
                self._idle.pop().close()

    def _forget_parent(self) -> None:
        if self._process != os.getpid():
            _inherited.extend(self._idle)
            self._idle = deque()
            self._thread = threading.local()
            self._process = os.getpid()

    def _open(self) -> QuickConnection:
        connection = self.connect()
        try:
            self._check(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def connect(self) -> QuickConnection:
        """Open a connection, whether or not the schema exists.

        Raises:
          ConfigError: The server refuses the login, is too old, or its database is not UTF-8.
          StoreUnavailable: It cannot be reached.
        """
        try:
            connection = QuickConnection.connect(
                self.address.conninfo, autocommit=True, prepare_threshold=1
            )
            connection.prepared, connection.is_awaited, connection.is_quick = {}, False, True
        except psycopg.Error as error:
            raise translated(error, self.address) from error
        try:
            _refuse_server(connection, self.address)
            connection.is_quick = not is_pooled(connection)
            if not connection.is_quick:
                connection.prepare_threshold = None
            else:
                connection.execute(_set("SET"), prepare=False)
        except psycopg.Error as error:
            connection.close()
            raise translated(error, self.address) from error
        except BaseException:
            connection.close()
            raise
        own: QuickConnection = connection
        return own

    def _check(self, connection: Connection) -> None:
        """Refuse tables of another version."""
        try:
            version = version_of(connection, self.address.schema)
        except psycopg.Error as error:
            raise translated(error, self.address) from error
        if version != str(SCHEMA_VERSION):
            raise unknown_version(self.address, version)


def version_of(connection: Connection, schema: str) -> str:
    """Return the version of the tables."""
    found = connection.execute(
        _named("SELECT value FROM @about WHERE name = 'schema'", schema), prepare=False
    ).fetchone()
    return str(found[0]) if found else ""


def unknown_version(address: Address, version: str) -> SchemaMismatch:
    """Return the error about tables of another version."""
    return SchemaMismatch(
        f"{address} has tables of schema {version!r}; this dueline knows {SCHEMA_VERSION}.",
        hint="Upgrade dueline on this machine; the tables were left as they are.",
    )


def is_pooled(connection: Connection) -> bool:
    """Return whether a pooler such as PgBouncer is between this process and the server."""
    row = connection.execute("SELECT pg_backend_pid()", prepare=False).fetchone()
    return row is not None and row[0] != connection.info.backend_pid


def _refuse_server(connection: Connection, address: Address) -> None:
    if connection.info.server_version < VERSION_MIN:
        raise ConfigError(
            f"{address} is a server of version {connection.info.server_version // 10000}.",
            hint=f"Use PostgreSQL {VERSION_MIN // 10000} or later.",
        )
    encoding = connection.info.parameter_status("server_encoding")
    if encoding != "UTF8":
        raise ConfigError(
            f"The database of {address} has the encoding {encoding}.",
            hint="Use a database that was created with ENCODING 'UTF8'.",
        )


def _set(how: str) -> str:
    return "; ".join(f"{how} {name} = {value}" for name, value in _SETTINGS.items())


def _begin(connection: Connection) -> str:
    """Begin a transaction and return its number, by which its outcome can be read."""
    cursor = connection.cursor()
    # A pooler gives each transaction another session, whose settings it must not change.
    settings = f"{_set('SET LOCAL')};" if connection.prepare_threshold is None else ""
    cursor.execute(f"BEGIN; {settings} SELECT pg_current_xact_id()::text", prepare=False)
    while cursor.nextset():
        pass
    row = cursor.fetchone()
    assert row is not None
    return str(row[0])


def _roll_back(connection: QuickConnection) -> None:
    """Roll back; a connection that cannot is closed when it is given back.

    Not by the driver's call, which would forget the prepared statements.
    """
    with suppress(psycopg.Error):
        if connection.is_quick:
            trips.run(connection, [(trips.ROLLBACK, ())])
        else:
            connection.execute("ROLLBACK", prepare=False)


def _alive(connection: QuickConnection) -> QuickConnection:
    """Return the connection if the server answers."""
    connection.execute("SELECT 1", prepare=False)
    return connection
