"""Translates the errors of PostgreSQL and of its driver."""

from typing import Final

import psycopg
from psycopg import errors

from dueline.core.errors import (
    BadInput,
    ConfigError,
    DuelineError,
    SchemaMismatch,
    StoreUnavailable,
)
from dueline.stores.postgres.address import Address

MIGRATE: Final = "Run `dueline migrate` with this URL once."

REPEATED: Final = (errors.SerializationFailure, errors.DeadlockDetected)
"""Errors of a transaction that was rolled back because of another one, and may be repeated."""

_REJECTED: Final = ("28000", "28P01", "3D000")
_NOT_SET_UP: Final = (errors.UndefinedTable, errors.InvalidSchemaName)
_HINTS: Final = {
    "25006": "The server is read-only, such as a replica: connect to the primary "
    "(target_session_attrs=read-write).",
    "53100": "Its disk is full: free some space; stored data is intact.",
    "53300": "It has too many connections: raise max_connections, or use a pooler.",
    "40001": "Another transaction has changed the same rows: roll back, and repeat.",
    "40P01": "Another transaction waited for this one: roll back, and repeat.",
    "57014": "An administrator or statement_timeout cancelled the statement; nothing was written.",
    "55P03": "Another transaction holds a lock: look for it in pg_stat_activity.",
}
_CROWDED: Final = ("too many connections", "too many clients", "connection slots are reserved")
"""Messages of a refused connection, for which the driver has no code."""


class LockNotAvailable(StoreUnavailable):
    """Another transaction held a lock for longer than `lock_timeout`; nothing was written."""


class IdExists(StoreUnavailable):
    """A row with the id of a new one exists; nothing was written."""


_KINDS: Final = {errors.LockNotAvailable: LockNotAvailable, errors.UniqueViolation: IdExists}


def translated(error: psycopg.Error, address: Address) -> DuelineError:
    """Translate an error after which nothing was written."""
    text = _text_of(error)
    state = error.sqlstate or ("53300" if any(one in text for one in _CROWDED) else "")
    if state in _REJECTED or "authentication failed" in text or "no password supplied" in text:
        return ConfigError(
            f"{address} rejects the connection: {text}.",
            hint="Check the user, password and database in the URL.",
        )
    if isinstance(error, _NOT_SET_UP):
        return ConfigError(f"{address} has not been set up.", hint=MIGRATE)
    if isinstance(error, errors.InsufficientPrivilege):
        return ConfigError(
            f"{address} refuses a statement: {text}.", hint="Grant this user the missing right."
        )
    if isinstance(error, psycopg.DataError):
        return BadInput(f"{address} cannot store a value: {text}.")
    if isinstance(error, psycopg.ProgrammingError):
        return SchemaMismatch(f"{address} refuses a statement: {text}.", hint=MIGRATE)
    return _KINDS.get(type(error), StoreUnavailable)(
        f"{address} failed: {text}.",
        hint=_HINTS.get(state, "Check that the server is running and reachable."),
    )


def _text_of(error: psycopg.Error) -> str:
    """Return the message without its context; the driver puts no password into messages."""
    return (error.diag.message_primary or str(error) or type(error).__name__).strip().rstrip(".")
