"""Connections to PostgreSQL, and transactions on them."""

import os
import random
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final, TypeVar

import psycopg
from psycopg import Connection
from psycopg.errors import InvalidParameterValue
from psycopg.pq import TransactionStatus

from dueline.core.clock import SECOND_US, Clock
from dueline.core.durations import lease_timeout_us
from dueline.core.errors import BadInput, ConfigError, SchemaMismatch, StoreUnavailable, Unknown
from dueline.core.store import BESIDE_A_TRANSACTION
from dueline.stores.postgres import trips
from dueline.stores.postgres.address import TIMEOUT_US, Address
from dueline.stores.postgres.database import (
    RECOVERY,
    Database,
    Query,
    begin,
    named,
    numbered,
    protect,
    set_all,
)
from dueline.stores.postgres.errors import REPEATED, refused, translated
from dueline.stores.postgres.mute_sessions import SESSION, MuteSessions
from dueline.stores.postgres.trips import QuickConnection, Results, Statement

T = TypeVar("T")

SCHEMA_VERSION: Final = 2
"""The version of the tables."""

VERSION_MIN: Final = 140000

IDLE_MAX: Final = 64
"""Maximum number of idle connections that a process keeps: as many as threads used at once, since
opening one costs more than ten calls."""

RESTED_US: Final = 10 * SECOND_US
"""Time after which an idle connection is closed, in microseconds: the server has few."""

ATTEMPTS: Final = 20
"""Maximum number of attempts of a transaction that others roll back."""

RESOLVE_US: Final = 5 * SECOND_US
"""Maximum time in which the outcome of a lost commit is read, in microseconds."""

_inherited: list[Connection] = []
"""Connections of a parent process: never used, and never closed, in a forked child."""


class Connections:
    """The connections of one process to one database; each thread uses one at a time.

    Attributes:
      is_pooled: There was a pooler between when the last one was opened.
      timeout_s: Time limit of a trip, in seconds.
    """

    def __init__(self, address: Address, clock: Clock) -> None:
        self.address = address
        self.is_pooled = False
        self._has_opened = False
        self.timeout_s = (address.timeout_us or TIMEOUT_US) / SECOND_US
        self._clock = clock
        self._idle: deque[QuickConnection] = deque()
        self._mute = MuteSessions()
        self._process = os.getpid()
        self._jitter = random.Random()
        self._thread = threading.local()

    def close(self) -> None:
        """Close the idle connections."""
        self._forget_parent()
        while self._idle:
            self._idle.pop().close()

    def follow_lease(self, lease_us: int) -> None:
        """Give up trips after a third of a lease, unless the address has a time limit."""
        if self.address.timeout_us is None:
            self.timeout_s = lease_timeout_us(lease_us, TIMEOUT_US) / SECOND_US

    def lose(self, connection: QuickConnection) -> None:
        """Close a connection of `connect`; if it gave no answer, have its session ended."""
        connection.close()
        self._note_mute(connection)

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
        self.refuse_beside()
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
        self.refuse_beside()
        connection = self._take()
        try:
            if not connection.is_quick or not trips.is_silent(connection):
                return None, False
            results = Results(connection)
            both = [self._numbered(query) for query in (write, then) if query]
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
            is_committed = self._is_committed(str(row[-1]), connection.recovery)
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
        self.refuse_beside()

        def transact(connection: QuickConnection) -> tuple[T, list[tuple[Any, ...]] | None]:
            database, (result, query) = self._run(connection, work)
            assert not database.later
            return result, self._commit(connection, database.number, query=query)

        return self._patiently(transact)

    def _write(self, work: Callable[[Database], T]) -> T:
        def transact(connection: QuickConnection) -> T:
            database, result = self._run(connection, work)
            if database.number:
                self._commit(connection, database.number, database.later)
            return result

        return self._patiently(transact)

    def _run(
        self, connection: QuickConnection, work: Callable[[Database], T]
    ) -> tuple[Database, T]:
        """Run `work` in a new transaction, which begins with its first statement."""
        database = self._database(connection)
        database.begin()
        try:
            result = work(database)
        except BaseException:
            if database.number:
                _roll_back(connection)
            raise
        return database, result

    def apart(self, work: Callable[[Database], T]) -> T:
        """Run `work` in a transaction of its own, also while this thread has one open."""
        return self._write(work)

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """Hold a transaction open until the end of the block.

        Raises:
          BadInput: This thread has one open.
          StoreUnavailable: Nothing was committed.
          Unknown: It may or may not be committed.
        """
        self.refuse_beside()
        connection = self._patiently(_alive, keeps=True)
        self._thread.is_open = True
        try:
            number = begin(connection, is_callers=True)
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

    def refuse_beside(self) -> None:
        """Raise BadInput if this thread has a transaction of its own open."""
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
                    self._drop_idle(is_mute=bool(self._mute))
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
        self,
        connection: QuickConnection,
        number: str,
        before: Sequence[Statement] = (),
        *,
        query: Query | None = None,
    ) -> list[tuple[Any, ...]] | None:
        """Commit after the last statements.

        Returns:
          The rows of a query after the commit; None without one, or if it failed.
        """
        rows, lost = self._try_commit(connection, before, query)
        if lost is None:
            return rows
        if not connection.closed:
            raise lost
        self._note_mute(connection)
        is_committed = self._is_committed(number, connection.recovery)
        if is_committed is None:
            raise self._unknown() from lost
        if not is_committed:
            raise lost
        return None

    def _try_commit(
        self, connection: QuickConnection, before: Sequence[Statement], query: Query | None
    ) -> tuple[list[tuple[Any, ...]] | None, psycopg.Error | None]:
        """Commit; return the rows of the query after it, and the error of the commit."""
        if connection.is_quick and query is not None:
            both = [(trips.COMMIT, ()), self._numbered(query)]
            (committed, answer), lost = trips.run_each(connection, both)
            if committed is None:
                return None, lost
            return Results(connection).rows(answer) if answer is not None else None, None
        try:
            if connection.is_quick:
                trips.run(connection, [*before, (trips.COMMIT, ())])
                return None, None
            connection.execute("COMMIT", prepare=False)
        except psycopg.Error as error:
            return None, error
        with suppress(psycopg.Error):
            return self._database(connection).fetch(*query) if query else None, None
        return None, None

    def _numbered(self, query: Query) -> Statement:
        return numbered(query[0], self.address.schema), query[1]

    def _unknown(self) -> Unknown:
        return Unknown(
            f"{self.address} did not say whether a transaction was committed.",
            hint="Repeat the call with the same ids.",
        )

    def _is_committed(self, number: str, recovery: int) -> bool | None:
        """Ask the server for the outcome of a transaction.

        Args:
          number: The transaction's number.
          recovery: When the server had last recovered from a crash, as its connection knew it.

        Returns:
          Whether it was committed; None if the server cannot say, or does not in time.
        """
        until_us = self._clock.monotonic_us() + RESOLVE_US
        self._drop_idle(is_mute=bool(self._mute))
        while self._clock.monotonic_us() < until_us:
            try:
                connection = self._take()
                try:
                    row = connection.execute(_OUTCOME, (number,), prepare=False).fetchone()
                finally:
                    self._give_back(connection)
            except InvalidParameterValue:  # since a crash, the server has given no such number
                return False
            except (psycopg.Error, StoreUnavailable, ConfigError):
                pass
            else:
                status, now = row or (None, None)
                if status != "in progress":
                    return _outcome_of(status, recovery, now)
            self._clock.sleep(0.05)
        return None

    def ended(self, number: str, process: int, recovery: int) -> bool:
        """Return whether a transaction was committed; end its session if it is still open.

        Args:
          number: The transaction's number.
          process: The server's process that has its session.
          recovery: When the server had last recovered from a crash.

        Raises:
          StoreUnavailable: The server does not answer or cannot say, or the session does not end in
            time.
        """
        until_us = self._clock.monotonic_us() + RESOLVE_US
        while True:
            ((status, now),) = self.read(lambda database: database.fetch(_OUTCOME, (number,)))
            if status != "in progress":
                is_committed = _outcome_of(status, recovery, now)
                if is_committed is None:
                    raise StoreUnavailable(
                        f"{self.address} has recovered from a crash since transaction {number}.",
                        hint="Whether that was committed is not known; read what it wrote.",
                    )
                return is_committed
            if self._clock.monotonic_us() > until_us:
                raise StoreUnavailable(f"A session on {self.address} does not end.")
            self.read(lambda database: database.first(
                "SELECT pg_terminate_backend(%s::integer)", (process,)
            ))  # fmt: skip
            self._clock.sleep(0.01)

    def _take(self) -> QuickConnection:
        self._forget_parent()
        while True:
            if self._mute:
                return self._open()
            try:
                connection = self._idle.pop()
            except IndexError:
                return self._open()
            connection.timeout_s = self.timeout_s
            with suppress(psycopg.Error):
                trips.settle(connection)
            if not connection.closed:
                return connection
            self._note_mute(connection)

    def _give_back(self, connection: QuickConnection) -> None:
        """Keep a connection that is idle, or ends a statement that was sent; close any other."""
        is_idle = (
            connection.is_awaited or connection.info.transaction_status == TransactionStatus.IDLE
        )
        if not (is_idle and len(self._idle) < IDLE_MAX and self._process == os.getpid()):
            connection.close()
            self._note_mute(connection)
            return
        connection.used_us = now_us = self._clock.monotonic_us()
        self._idle.append(connection)
        with suppress(IndexError):  # the last one that was used is the next to be used
            while now_us - self._idle[0].used_us > RESTED_US:
                self._idle.popleft().close()

    def _drop_idle(self, *, is_mute: bool) -> None:
        """Close the idle connections; if one gave no answer, the others may be mute, too."""
        while self._idle:
            with suppress(IndexError):
                connection = self._idle.pop()
                connection.close()
                connection.is_mute = is_mute
                self._note_mute(connection)

    def _note_mute(self, connection: QuickConnection) -> None:
        """Have the session of a connection ended that gave no answer, once."""
        if connection.is_mute:
            connection.is_mute = False
            self._mute.add(connection)

    def _forget_parent(self) -> None:
        if self._process != os.getpid():
            _inherited.extend(self._idle)
            self._idle = deque()
            self._mute = MuteSessions()
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
                self.address.conninfo, autocommit=True, prepare_threshold=1, client_encoding="UTF8"
            )
            connection.prepared, connection.is_awaited, connection.is_quick = {}, False, True
            connection.recovery = connection.used_us = 0
            connection.timeout_s = self.timeout_s
        except psycopg.Error as error:
            raise (translated if self._has_opened else refused)(error, self.address) from error
        try:
            _refuse_server(connection, self.address)
            process, connection.recovery, began_us = ask_server(connection)
            connection.session = process, began_us
            connection.is_quick = process == connection.info.backend_pid
            self.is_pooled = not connection.is_quick
            if not connection.is_quick:
                connection.prepare_threshold = None
            else:
                connection.execute(f"{set_all('SET')}; {protect()}", prepare=False)
            self._mute.end(connection)
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
            check_version(connection, self.address)
        except psycopg.Error as error:
            raise translated(error, self.address) from error
        self._has_opened = True


_OUTCOME: Final = f"SELECT pg_xact_status(%s::text::xid8), {RECOVERY}"


def _outcome_of(status: str | None, recovery: int, now: int | None) -> bool | None:
    """Return whether a transaction was committed; None if that is not known.

    A number that no disk had seen before a crash is given to another transaction after it, whose
    commit says nothing about the first one. A rollback does: a commit takes its number for good.

    Args:
      status: What the server says of the number; None if it has forgotten it.
      recovery: Its last recovery from a crash before the transaction; 0 if that is not known.
      now: Its last one at this answer. It is another one on a server that was a replica.
    """
    if status == "committed":
        return True if recovery and recovery == now else None
    return False if status == "aborted" else None


def check_version(connection: Connection, address: Address) -> None:
    """Raise SchemaMismatch if the tables are of another version."""
    row = connection.execute(
        named("SELECT value FROM @about WHERE name = 'schema'", address.schema), prepare=False
    ).fetchone()
    version = str(row[0]) if row else ""
    if version == "1":
        raise SchemaMismatch.too_old(f"{address} has tables of schema 1")
    if version != str(SCHEMA_VERSION):
        raise SchemaMismatch(
            f"{address} has tables of schema {version!r}; this dueline knows {SCHEMA_VERSION}.",
            hint="Upgrade dueline on this machine; the tables were left as they are.",
        )


def ask_server(connection: Connection) -> tuple[int, int, int]:
    """Return the process of the session, the server's last recovery from a crash, and its begin.

    The process is another one than the driver knows if a pooler such as PgBouncer is between.
    """
    row = connection.execute(
        f"SELECT pg_backend_pid(), {RECOVERY}, {SESSION}", prepare=False
    ).fetchone()
    assert row is not None
    return int(row[0]), int(row[1]), int(row[2] or 0)


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
