"""Connections of callers: of psycopg, or of an ORM that uses it."""

from collections.abc import Sequence
from typing import Any, Final

import psycopg
from psycopg import AsyncConnection, AsyncCursor, Connection
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from dueline.core.errors import BadInput

_HINT: Final = (
    "Pass a connection or cursor of psycopg 3, a Session or Connection of SQLAlchemy with the "
    "dialect postgresql+psycopg (that of an AsyncSession inside its run_sync), or "
    "django.db.connection; or write `with app.transaction() as tx:`."
)


class AwaitedCursor:
    """A cursor on the asynchronous connection of an AsyncSession, inside its `run_sync`."""

    def __init__(self, connection: AsyncConnection) -> None:
        from sqlalchemy.util import await_only  # noqa: PLC0415  (the caller has it)

        self._wait = await_only
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
        return self._wait(self._cursor.fetchall())

    def fetchone(self) -> tuple[Any, ...] | None:
        """Return the next row."""
        row: tuple[Any, ...] | None = self._wait(self._cursor.fetchone())
        return row


def connection_of(tx: object) -> Connection | AsyncConnection:
    """Return the driver's connection of a caller's object.

    Raises:
      BadInput: It has none, or no transaction is open on it.
    """
    found: Any = tx
    modules = {kind.__module__.partition(".")[0] for kind in type(tx).__mro__}
    kinds: tuple[type, ...] = (Connection,)
    if type(tx).__module__.startswith("sqlalchemy.ext.asyncio"):
        pass  # not without its run_sync
    elif "sqlalchemy" in modules:
        kinds = (Connection, AsyncConnection)
        if hasattr(found, "get_bind"):  # a Session: begins its transaction if it has none
            found = found.connection()
        found = getattr(found.connection, "driver_connection", None)
    elif "django" in modules and hasattr(found, "ensure_connection"):
        found.ensure_connection()
        found = found.connection
    elif isinstance(found, psycopg.Cursor):
        found = found.connection
    if not isinstance(found, kinds):
        raise BadInput(
            f"`tx` must be a transaction on PostgreSQL (got a {type(tx).__name__}).", hint=_HINT
        )
    driver: Any = found
    status = driver.info.transaction_status
    if status == TransactionStatus.INERROR:
        raise BadInput("The transaction of `tx` has failed.", hint="Roll it back first.")
    if driver.closed or (driver.autocommit and status != TransactionStatus.INTRANS):
        raise BadInput(
            "`tx` has no transaction open: each statement would be committed by itself.",
            hint="Use `with connection.transaction():`, or transaction.atomic() in Django.",
        )
    encoding = driver.info.parameter_status("client_encoding")
    if encoding != "UTF8":
        raise BadInput(
            f"The connection of `tx` has the client encoding {encoding}.",
            hint="Connect with client_encoding=UTF8.",
        )
    connection: Connection | AsyncConnection = driver
    return connection
