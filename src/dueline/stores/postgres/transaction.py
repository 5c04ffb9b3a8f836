"""A caller's open transaction, and the statements allowed in it."""

import re
from collections.abc import Callable
from typing import Any, Final, TypeVar

import psycopg
from psycopg import Connection

from dueline.core.errors import BadInput, Conflict, StoreUnavailable
from dueline.core.store import Bindings
from dueline.stores.postgres.callers import AsyncpgConnection, AwaitedCursor, Driver
from dueline.stores.postgres.connection import Connections
from dueline.stores.postgres.database import Database, Query, savepoint
from dueline.stores.postgres.errors import translated
from dueline.stores.postgres.trips import unlimited

T = TypeVar("T")

_NEVER: Final = re.compile(
    r"\s*(abort|begin|commit|end|prepare|release|rollback|savepoint|set|reset|start|discard)\b",
    re.IGNORECASE,
)
_WRITES: Final = r"\b(insert|update|delete|merge|truncate|alter|drop|create|lock|copy)\b"


class OpenTransaction:
    """Runs the store's calls and the caller's statements in one open transaction.

    Attributes:
      is_pooled: There is a pooler between.
    """

    def __init__(
        self,
        connections: Connections,
        connection: Driver,
        cursor: AwaitedCursor | AsyncpgConnection | None = None,
    ) -> None:
        schema = connections.address.schema
        self.is_pooled = connections.is_pooled
        self._address = connections.address
        self._connection = connection
        self._database = Database(connection, schema, connections.apart, cursor=cursor)
        self._own = re.compile(rf'{_WRITES}.*\b"?{schema}"?\s*\.', re.IGNORECASE | re.DOTALL)

    def has_table(self, name: str) -> bool:
        """Return whether the store's schema on this connection has a table."""
        row = self.read(
            lambda database: database.first(
                "SELECT to_regclass(%s) IS NOT NULL", (f"{self._address.schema}.{name}",)
            )
        )
        return row is not None and bool(row[0])

    def read(self, work: Callable[[Database], T]) -> T:
        """Run `work` in the transaction."""
        return self.write(work)

    def write(self, work: Callable[[Database], T]) -> T:
        """Run `work` in the transaction, all or nothing."""
        try:
            with savepoint(self._database):
                return work(self._database)
        except psycopg.Error as error:
            raise self._translated(error) from error

    def write_then_fetch(
        self, work: Callable[[Database], tuple[T, Query]]
    ) -> tuple[T, list[tuple[Any, ...]]]:
        """Run `work` and its query in the transaction."""

        def both(database: Database) -> tuple[T, list[tuple[Any, ...]]]:
            result, query = work(database)
            return result, database.fetch(*query)

        return self.write(both)

    def execute(self, statement: str, bindings: Bindings) -> list[tuple[Any, ...]]:
        """Run a caller's statement and return its rows; parameters are `%s` or `%(name)s`.

        Raises:
          BadInput: It cannot be run, or is not allowed.
          Conflict: It breaks a constraint.
          StoreUnavailable: It could not be written, or the transaction was rolled back.
        """
        if _NEVER.match(statement) or self._own.search(statement):
            raise BadInput(
                "The statement would end the transaction, or change a table of the queue: "
                f"{statement:.80}",
                hint="Use tables of your own, and leave the end to the block.",
            )
        try:
            with savepoint(self._database):
                assert isinstance(self._connection, Connection)  # of the application
                with unlimited(self._connection):
                    cursor = self._connection.execute(statement.encode(), bindings, prepare=True)
                return cursor.fetchall() if cursor.description is not None else []
        except psycopg.IntegrityError as error:
            raise Conflict(f"{_first_line(error)}, in: {statement:.80}") from error
        except (psycopg.ProgrammingError, psycopg.DataError, psycopg.NotSupportedError,
                TypeError, ValueError, LookupError) as error:  # fmt: skip
            raise BadInput(f"{_first_line(error)}, in: {statement:.80}") from error
        except psycopg.Error as error:
            raise self._translated(error) from error

    def _translated(self, error: psycopg.Error) -> Exception:
        if self._connection.closed:
            return StoreUnavailable(
                f"The transaction on {self._address} was rolled back before its end.",
                hint="The connection was lost; nothing was written.",
            )
        return translated(error, self._address)


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
