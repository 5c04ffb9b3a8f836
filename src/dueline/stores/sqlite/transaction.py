"""A caller's open transaction, and the statements allowed in it."""

from collections.abc import Callable
from typing import Any, Final, TypeVar

import apsw

from dueline.core.errors import BadInput, Conflict
from dueline.core.store import Bindings
from dueline.stores.sqlite.connection import Database, SqliteConnection, savepoint

T = TypeVar("T")

OWN_TABLES: Final = frozenset({"bodies", "jobs", "lanes", "marks", "records", "rows"})
OWN_PREFIX: Final = "dueline_"
"""Prefix of tables of later versions."""

_READS: Final = {
    apsw.SQLITE_SELECT,
    apsw.SQLITE_READ,
    apsw.SQLITE_FUNCTION,
    apsw.SQLITE_RECURSIVE,
}
_NEVER: Final = {
    apsw.SQLITE_TRANSACTION,
    apsw.SQLITE_SAVEPOINT,
    apsw.SQLITE_ATTACH,
    apsw.SQLITE_DETACH,
    apsw.SQLITE_PRAGMA,
}
_ROWS: Final = {apsw.SQLITE_INSERT, apsw.SQLITE_UPDATE, apsw.SQLITE_DELETE}


class Guard:
    """The authorizer that SQLite asks when it compiles a statement.

    It stays on the connection: setting it again makes SQLite compile all statements again.

    is_on: Whether the statement is a caller's, not one of the store.
    """

    def __init__(self) -> None:
        self.is_on = False

    def __call__(
        self, action: int, first: str | None, second: str | None, _schema: object, _by: object
    ) -> int:
        """Return SQLITE_OK or SQLITE_DENY (sqlite.org/c3ref/c_alter_table.html)."""
        if not self.is_on or action in _READS:
            return apsw.SQLITE_OK
        if action in _NEVER:
            return apsw.SQLITE_DENY
        names = (first,) if action in _ROWS else (first, second)
        return apsw.SQLITE_DENY if any(map(_is_own, names)) else apsw.SQLITE_OK


def _is_own(name: str | None) -> bool:
    plain = (name or "").lower()
    return plain in OWN_TABLES or plain.startswith(OWN_PREFIX)


class SqliteTransaction:
    """Executor the store's calls and the caller's statements in one open transaction."""

    def __init__(self, connection: SqliteConnection, database: Database, guard: Guard) -> None:
        self._connection = connection
        self._database = database
        self._guard = guard
        if database.authorizer is not guard:
            database.authorizer = guard

    def read(self, work: Callable[[Database], T]) -> T:
        """Run `work` in the transaction."""
        return self._run(work)

    def write(self, work: Callable[[Database], T]) -> T:
        """Run `work` in the transaction, all or nothing."""

        def call(database: Database) -> T:
            with savepoint(database):
                return work(database)

        return self._run(call)

    def write_unflushed(self, work: Callable[[Database], T]) -> T:
        """Run `work` as `write` does: the transaction flushes it."""
        return self.write(work)

    def _run(self, work: Callable[[Database], T]) -> T:
        self._connection.expect_open(self._database)
        try:
            with self._connection.disk:
                return work(self._database)
        except apsw.Error as error:
            raise self._connection.translated(error) from error

    def execute(self, statement: str, bindings: Bindings) -> list[tuple[Any, ...]]:
        """Run a caller's statement and return its rows.

        Raises:
          BadInput: It cannot be compiled or bound, or is not allowed.
          Conflict: It breaks a constraint.
          StoreUnavailable: It could not be written, or the transaction was rolled back.
        """
        self._connection.expect_open(self._database)
        self._guard.is_on = True
        try:
            with self._connection.disk:
                return self._database.execute(statement, bindings, can_cache=False).fetchall()
        except apsw.AuthError as error:
            raise BadInput(
                "The statement would end the transaction, or change a table of the queue: "
                f"{statement:.80}",
                hint="Use tables of your own, and leave the end to the block.",
            ) from error
        except apsw.ConstraintError as error:
            raise Conflict(f"{error}, in: {statement:.80}") from error
        except (
            apsw.SQLError, apsw.BindingsError, apsw.MismatchError, apsw.RangeError,
            apsw.TooBigError, TypeError, ValueError, LookupError, OverflowError,
        ) as error:  # fmt: skip
            raise BadInput(f"{error}, in: {statement!s:.80}") from error
        except apsw.Error as error:
            raise self._connection.translated(error) from error
        finally:
            self._guard.is_on = False
