"""Statements on one connection."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, Final, Protocol, TypeVar

from psycopg import Connection, Cursor
from psycopg.pq import Format
from psycopg.pq.abc import PGresult
from psycopg.rows import tuple_row

from dueline.stores.postgres import trips
from dueline.stores.postgres.arrays import packed, register
from dueline.stores.postgres.callers import AsyncpgConnection, AwaitedCursor, Driver
from dueline.stores.postgres.trips import QuickConnection, Results, Statement

T = TypeVar("T")

Query = tuple[str, Sequence[Any]]
"""A statement, and its values."""

LEAST: Final = -(2**63)
GREATEST: Final = 2**63 - 1
NOW_US: Final = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
"""The server's time; now() is the start of the transaction, which may be the caller's."""

RECOVERY: Final = (
    "(SELECT coalesce((extract(epoch FROM stats_reset) * 1000000)::bigint, 0) FROM pg_stat_wal)"
)
"""When the server last recovered from a crash, which resets its statistics; 0 if it does not say.

It changes, too, when a replica takes over, or when an administrator resets the statistics; dueline
then trusts no number of a transaction that was under way.
"""

SNAPSHOTS: Final = ("repeatable read", "serializable")
"""Isolation levels that see nothing that was committed after the beginning of the transaction."""

_SETTINGS: Final = {
    # Each statement reads what is committed, whatever the role or the database has as default.
    "default_transaction_isolation": "'read committed'",
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

_PROTECTION: Final = {
    # The server ends the sessions of a machine that is gone, and the locks of its transactions.
    "tcp_keepalives_idle": "10",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "3",
    # A transaction of the store has a few trips; one of a caller keeps the role's own limit.
    "idle_in_transaction_session_timeout": "'1min'",
}
"""Settings of a session that is the store's own: not behind a pooler."""


class Database:
    """Statements on one connection; `@` before a table's name stands for the schema.

    On connections of the store a statement is one trip, with BEGIN if it is the first one; on those
    of callers, and behind a pooler, statements are calls of the driver.

    Attributes:
      apart: Runs work in a transaction of its own that commits at once, and returns its result.
        None if this transaction is short, so others may wait for its end.
      schema: The name of the schema.
      number: The number of the transaction that it began; empty before its first statement.
      later: Statements of that transaction that are sent with the next one, or with the commit.

    Args:
      cursor: Runs the statements; by default a new cursor of the connection.
    """

    def __init__(
        self,
        connection: Driver,
        schema: str,
        apart: "Callable[[Callable[[Database], Any]], Any] | None" = None,
        *,
        cursor: AwaitedCursor | AsyncpgConnection | None = None,
    ) -> None:
        self.connection = connection
        self.apart = apart
        self.number = ""
        self.later: list[Statement] = []
        self.schema = schema
        self._begins = False
        self._quick: QuickConnection | None = None
        if isinstance(connection, QuickConnection) and connection.is_quick:
            self._quick = connection
            self._results = Results(connection)
            return
        self._packs = cursor is None or cursor.packs
        self._cursor: Any = cursor
        if cursor is None:  # not by the connection's own factory, which a caller may have set
            assert isinstance(connection, Connection)
            self._cursor = Cursor(connection, row_factory=tuple_row)
            self._cursor.format = Format.BINARY
        if self._packs:
            register(self._cursor)

    def begin(self) -> None:
        """Begin a transaction: with the first statement, if that saves a trip."""
        if self._quick is not None:
            self._begins = True
        else:
            assert isinstance(self.connection, Connection)
            self.number = begin(self.connection)

    def fetch(self, statement: str, bound: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Run a query and return all its rows."""
        if self._quick is not None:
            return self._results.rows(self._run_quickly(self._quick, statement, bound))
        rows: list[tuple[Any, ...]] = self._run(statement, bound).fetchall()
        return rows

    def fetch_after(
        self, before: Query, statement: str, bound: Sequence[Any]
    ) -> list[tuple[Any, ...]]:
        """Run a query after another one whose result is not needed, in one trip."""
        if self._quick is not None:
            self.later.append((numbered(before[0], self.schema), before[1]))
        else:
            self.execute(*before)
        return self.fetch(statement, bound)

    def first(self, statement: str, bound: Sequence[Any] = ()) -> tuple[Any, ...] | None:
        """Run a query and return its first row."""
        return next(iter(self.fetch(statement, bound)), None)

    def execute(self, statement: str, bound: Sequence[Any] = ()) -> int:
        """Run a statement and return the number of rows that it changed."""
        if self._quick is not None:
            return self._run_quickly(self._quick, statement, bound).command_tuples or 0
        return int(self._run(statement, bound).rowcount)

    def execute_later(self, statement: str, bound: Sequence[Any]) -> None:
        """Run a statement whose result is not needed, by the end of the transaction."""
        if self._quick is not None and self.number:
            self.later.append((numbered(statement, self.schema), bound))
        else:
            self.execute(statement, bound)

    def has_snapshot(self) -> bool:
        """Return whether the transaction sees nothing that was committed after its beginning."""
        row = self.first("SELECT current_setting('transaction_isolation')")
        return row is not None and row[0] in SNAPSHOTS

    def _run(self, statement: str, bound: Sequence[Any]) -> Any:  # noqa: ANN401
        values = [
            packed(value) if type(value) is list and self._packs else value for value in bound
        ]
        return self._cursor.execute(named(statement, self.schema), values)

    def _run_quickly(
        self, connection: QuickConnection, statement: str, bound: Sequence[Any]
    ) -> PGresult:
        text = numbered(statement, self.schema)
        if not self._begins:
            statements, self.later = [*self.later, (text, bound)], []
            return trips.run(connection, statements)[-1]
        self._begins, self.number = False, "unknown"  # there is something to roll back
        statements, self.later = [*self.later, (text, bound)], []
        _, number, *results = trips.run(
            connection, [(trips.BEGIN, ()), (trips.NUMBER, ()), *statements]
        )
        self.number = (number.get_value(0, 0) or b"").decode()
        return results[-1]


@lru_cache(maxsize=1000)
def named(statement: str, schema: str) -> bytes:
    """Return a statement for the driver, with the schema's name."""
    return statement.replace("@", f"{schema}.").replace("%s", "%b").encode()  # binary values


@lru_cache(maxsize=1000)
def numbered(statement: str, schema: str) -> bytes:
    """Return a statement with the schema's name, and with $1, $2, … for its values."""
    head, *rest = statement.replace("@", f"{schema}.").split("%s")
    return "".join([head, *(f"${number}{text}" for number, text in enumerate(rest, 1))]).encode()


@contextmanager
def savepoint(database: Database) -> Iterator[None]:
    """Roll back the statements of the block if it raises; the transaction stays open."""
    database.execute("SAVEPOINT dueline_block")
    try:
        yield
    except BaseException:
        database.later.clear()
        if not database.connection.closed:
            database.execute("ROLLBACK TO dueline_block")
            database.execute("RELEASE dueline_block")
        raise
    database.execute("RELEASE dueline_block")


class Executor(Protocol):
    """Runs a store's calls: on connections of its own, or in an open transaction.

    Attributes:
      is_pooled: There is a pooler between, so no notification comes.
    """

    is_pooled: bool

    def read(self, work: Callable[[Database], T]) -> T: ...  # noqa: D102
    def write(self, work: Callable[[Database], T]) -> T: ...  # noqa: D102
    def write_then_fetch(  # noqa: D102
        self, work: Callable[[Database], tuple[T, Query]]
    ) -> tuple[T, list[tuple[Any, ...]] | None]: ...


def set_all(how: str) -> str:
    """Return the statements that change a session's settings: SET or SET LOCAL."""
    return "; ".join(f"{how} {name} = {value}" for name, value in _SETTINGS.items())


def protect() -> str:
    """Return the statements that bound what a session holds after its client is gone."""
    return "; ".join(f"SET {name} = {value}" for name, value in _PROTECTION.items())


def begin(connection: Connection, *, is_callers: bool = False) -> str:
    """Begin a transaction and return its number, by which its outcome can be read.

    Args:
      is_callers: A caller holds it open, for as long as the role may.
    """
    cursor = connection.cursor()
    # A pooler gives each transaction another session, whose settings it must not change.
    settings = f"{set_all('SET LOCAL')};" if connection.prepare_threshold is None else ""
    if is_callers and not settings:
        settings = "SET LOCAL idle_in_transaction_session_timeout TO DEFAULT;"
    first = trips.BEGIN.decode()
    cursor.execute(f"{first}; {settings} SELECT pg_current_xact_id()::text", prepare=False)
    while cursor.nextset():
        pass
    row = cursor.fetchone()
    assert row is not None
    return str(row[0])
