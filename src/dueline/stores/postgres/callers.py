"""Connections of callers: of psycopg, or of an ORM that uses it."""

from typing import Any, Final

import psycopg
from psycopg import Connection
from psycopg.pq import TransactionStatus

from dueline.core.errors import BadInput

_HINT: Final = (
    "Pass a connection or cursor of psycopg 3, a Session or Connection of SQLAlchemy with the "
    "dialect postgresql+psycopg, or django.db.connection; or write `with app.transaction() as tx:`."
)


def connection_of(tx: object) -> Connection:
    """Return the driver's connection of a caller's object.

    Raises:
      BadInput: It has none, or no transaction is open on it.
    """
    found: Any = tx
    modules = {kind.__module__.partition(".")[0] for kind in type(tx).__mro__}
    if "sqlalchemy" in modules:
        if hasattr(found, "get_bind"):  # a Session: begins its transaction if it has none
            found = found.connection()
        found = getattr(found.connection, "driver_connection", None)
    elif "django" in modules and hasattr(found, "ensure_connection"):
        found.ensure_connection()
        found = found.connection
    elif isinstance(found, psycopg.Cursor):
        found = found.connection
    if not isinstance(found, Connection):
        raise BadInput(
            f"`tx` must be a transaction on PostgreSQL (got a {type(tx).__name__}).", hint=_HINT
        )
    status = found.info.transaction_status
    if status == TransactionStatus.INERROR:
        raise BadInput("The transaction of `tx` has failed.", hint="Roll it back first.")
    if found.closed or (found.autocommit and status != TransactionStatus.INTRANS):
        raise BadInput(
            "`tx` has no transaction open: each statement would be committed by itself.",
            hint="Use `with connection.transaction():`, or transaction.atomic() in Django.",
        )
    return found
