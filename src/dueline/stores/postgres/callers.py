"""Connections of callers: of psycopg, of asyncpg, or of an ORM that uses one of them."""

from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeAlias

import psycopg
from psycopg import AsyncConnection, AsyncCursor, Connection
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from dueline.core.errors import BadInput
from dueline.core.store_capabilities import AwaitedConnection

Wait = Callable[[Coroutine[Any, Any, Any]], Any]

_HINT: Final = (
    "Pass a connection of psycopg 3 or asyncpg, a Session, AsyncSession or connection of "
    "SQLAlchemy with one of them, or django.db.connection; or write "
    "`with app.transaction() as tx:`."
)
_TYPES: Final = {int: "int8", bool: "bool", str: "text", bytes: "bytea"}
"""Types of values, as psycopg sends them; asyncpg asks the server, which guesses others."""


class AwaitedCursor:
    """A cursor on an asynchronous connection of psycopg."""

    packs = True

    def __init__(self, connection: AsyncConnection, wait: Wait) -> None:
        self._wait = wait
        self._cursor = AsyncCursor(connection, row_factory=tuple_row)
        self.adapters = self._cursor.adapters

    @property
    def rowcount(self) -> int:
        """The number of rows that the last statement changed."""
        return int(self._cursor.rowcount)

    def execute(self, statement: bytes, bound: Sequence[Any]) -> "AwaitedCursor":
        """Run a statement, and wait for its end."""
        self._wait(self._cursor.execute(statement, bound, binary=True))
        return self

    def fetchall(self) -> list[tuple[Any, ...]]:
        """Return all rows."""
        rows: list[tuple[Any, ...]] = self._wait(self._cursor.fetchall())
        return rows


class AsyncpgConnection:
    """A connection of asyncpg, which runs statements as a cursor of psycopg does.

    A statement is run when its rows, or their number, are read.
    """

    packs = False

    def __init__(self, connection: Any, wait: Wait) -> None:  # noqa: ANN401  (not imported)
        self._connection = connection
        self._wait = wait
        self._asked: tuple[str, Sequence[Any]] = ("", ())

    @property
    def closed(self) -> bool:
        """Whether it is closed."""
        return bool(self._connection.is_closed())

    def execute(self, statement: bytes, bound: Sequence[Any]) -> "AsyncpgConnection":
        """Take a statement."""
        self._asked = _cast(statement, tuple(map(_type_of, bound))), bound
        return self

    def fetchall(self) -> list[tuple[Any, ...]]:
        """Run the statement and return all rows."""
        statement, bound = self._asked
        with _as_of_psycopg():
            return list(map(tuple, self._wait(self._connection.fetch(statement, *bound))))

    @property
    def rowcount(self) -> int:
        """Run the statement and return the number of rows that it changed."""
        statement, bound = self._asked
        with _as_of_psycopg():
            status: str = self._wait(self._connection.execute(statement, *bound))
        last = status.rpartition(" ")[2]  # of "INSERT 0 7", or "SAVEPOINT"
        return int(last) if last.isdigit() else 0


Driver: TypeAlias = Connection | AsyncConnection | AsyncpgConnection


class CallersConnection(NamedTuple):
    """A caller's connection, and the cursor that runs statements on it; None for a new one."""

    driver: Driver
    cursor: AwaitedCursor | AsyncpgConnection | None


def _type_of(value: object) -> str:
    if type(value) is not list:
        return _TYPES.get(type(value), "")
    known = (_TYPES[type(item)] for item in value if item is not None)
    return f"{next(known, 'text')}[]"


@lru_cache(maxsize=1000)
def _cast(statement: bytes, types: Sequence[str]) -> str:
    """Return a statement with $1, $2, … for its values, each with its type."""
    head, *rest = statement.decode().split("%b")
    casts = (f"${n}::{kind}" if kind else f"${n}" for n, kind in enumerate(types, 1))
    return "".join([head, *(cast + text for cast, text in zip(casts, rest, strict=True))])


@contextmanager
def _as_of_psycopg() -> Iterator[None]:
    """Raise errors of asyncpg as those of psycopg."""
    try:
        yield
    except Exception as error:
        if not type(error).__module__.startswith("asyncpg"):
            raise
        state = getattr(error, "sqlstate", None) or ""
        if state == psycopg.errors.InFailedSqlTransaction.sqlstate:
            raise _failed() from error
        try:
            kind = psycopg.errors.lookup(state)
        except KeyError:  # the connection was lost, say
            kind = psycopg.OperationalError
        raise kind(str(error)) from error


def connection_of(tx: object) -> CallersConnection:
    """Return the driver's connection of a caller's object.

    Raises:
      BadInput: It has none, or no transaction is open on it.
    """
    wait: Wait | None = None
    inner: Any = tx
    if isinstance(tx, AwaitedConnection):
        inner, wait = tx.connection, tx.wait
    modules = {kind.__module__.partition(".")[0] for kind in type(inner).__mro__}
    kind = type(inner).__name__
    if "sqlalchemy" in modules and wait is not None:
        inner = wait(inner.run_sync(_driver_of))
    elif "sqlalchemy" in modules:
        inner = _driver_of(inner)
        if not isinstance(inner, Connection):
            from sqlalchemy.util import await_only  # noqa: PLC0415  (the caller has it)

            wait = await_only
    elif "django" in modules and hasattr(inner, "ensure_connection"):
        inner.ensure_connection()
        inner = inner.connection
    elif isinstance(inner, psycopg.Cursor | AsyncCursor):
        inner = inner.connection
    if wait is not None and type(inner).__module__.startswith("asyncpg."):
        return _of_asyncpg(inner, wait)
    if not isinstance(inner, Connection if wait is None else AsyncConnection):
        raise BadInput(f"`tx` must be a transaction on PostgreSQL (got a {kind}).", hint=_HINT)
    status = inner.info.transaction_status
    if status == TransactionStatus.INERROR:
        raise _failed()
    if inner.closed or (inner.autocommit and status != TransactionStatus.INTRANS):
        raise _not_open()
    _check_encoding(inner.info.parameter_status("client_encoding"))
    cursor = AwaitedCursor(inner, wait) if isinstance(inner, AsyncConnection) and wait else None
    return CallersConnection(inner, cursor)


def _of_asyncpg(connection: Any, wait: Wait) -> CallersConnection:  # noqa: ANN401
    if connection.is_closed() or not connection.is_in_transaction():
        raise _not_open()
    _check_encoding(connection.get_settings().client_encoding)
    made = AsyncpgConnection(connection, wait)
    return CallersConnection(made, made)


def _driver_of(owner: Any) -> Any:  # noqa: ANN401  (a Session or Connection of SQLAlchemy)
    """Return the driver's connection of SQLAlchemy's; begin a transaction if necessary."""
    if hasattr(owner, "get_bind"):  # a Session
        owner = owner.connection()
    driver = getattr(owner.connection, "driver_connection", None)
    is_begun = getattr(driver, "is_in_transaction", owner.in_transaction)
    if not is_begun():
        owner.exec_driver_sql("SELECT 1")
    return driver


def _failed() -> BadInput:
    return BadInput("The transaction of `tx` has failed.", hint="Roll it back first.")


def _not_open() -> BadInput:
    return BadInput(
        "`tx` has no transaction open: each statement would be committed by itself.",
        hint="Use `with connection.transaction():`, or transaction.atomic() in Django.",
    )


def _check_encoding(encoding: str | None) -> None:
    if str(encoding).upper().replace("-", "") != "UTF8":
        raise BadInput(
            f"The connection of `tx` has the client encoding {encoding}.",
            hint="Connect with client_encoding=UTF8.",
        )
