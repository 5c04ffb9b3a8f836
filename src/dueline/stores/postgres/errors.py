"""Translates the errors of PostgreSQL and of its driver."""

import re
from typing import Final

import psycopg
from psycopg import conninfo, errors

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

_WRONG_ADDRESSES: Final = {
    re.compile(
        r'database ".*" does not exist|no such database'
    ): "Create the database (createdb NAME), or correct its name in the URL.",
    re.compile(
        r'role ".*" (does not exist|is not permitted)|no such user'
    ): "Check the user in the URL.",
    re.compile(r"pg_hba\.conf"): "Allow this user, database and address in pg_hba.conf, or use TLS "
    "(sslmode=require).",
    re.compile(r"does not support SSL|certificate|sslmode value"): "Check sslmode and sslrootcert "
    "in the URL, and the server's certificate.",
    re.compile(r"^invalid |connection is bad: invalid "): "Correct the URL: its query takes "
    "`schema` and the parameters of libpq.",
}
"""Messages of a first connection that no retry changes, with what to do."""

_SILENT: Final = re.compile(r"timeout expired|closed the connection unexpectedly|received invalid")


class LockNotAvailable(StoreUnavailable):
    """Another transaction held a lock for longer than `lock_timeout`; nothing was written."""


class IdExists(StoreUnavailable):
    """A row with the id of a new one exists; nothing was written."""


_KINDS: Final = {errors.LockNotAvailable: LockNotAvailable, errors.UniqueViolation: IdExists}


def translated(error: psycopg.Error, address: Address) -> DuelineError:
    """Translate an error after which nothing was written."""
    text = _text_of(error)
    state = error.sqlstate or ("53300" if any(word in text for word in _CROWDED) else "")
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
    hint = _HINTS.get(state, "Check that the server is running and reachable.")
    if "failed to resolve host" in text:
        hint = "Check the host name."
    return _KINDS.get(type(error), StoreUnavailable)(f"{address} failed: {text}.", hint=hint)


def refused(error: psycopg.Error, address: Address) -> DuelineError:
    """Translate the error of a first connection: a wrong URL is no outage.

    The server's codes are not known here: libpq hands out none for a refused connection, unless
    its verbosity is set, which psycopg does not offer. Its messages may be translated
    (`lc_messages`); they are then taken for an outage, as are names of hosts that are unknown:
    they may appear later, as in a cluster whose names are still being set up.
    """
    text = _text_of(error)
    for sign, hint in _WRONG_ADDRESSES.items():
        if sign.search(text):
            return ConfigError(f"{address} rejects the connection: {text}.", hint=hint)
    place = conninfo.conninfo_to_dict(address.conninfo) if _SILENT.search(text) else {}
    host, port = (str(place.get(part) or "").partition(",")[0] for part in ("host", "port"))
    if host and not host.startswith("/"):
        from dueline.stores import server_probe  # noqa: PLC0415  (needed after a failure only)

        answered = server_probe.servers_at(host, int(port or 5432))
        if other := server_probe.misplaced(answered, server_probe.POSTGRESQL):
            return ConfigError(
                f"{host}:{port or 5432} is {other}, not a PostgreSQL server.",
                hint="Check the host and the port.",
            )
    return translated(error, address)


def _text_of(error: psycopg.Error) -> str:
    """Return the message without its context; the driver puts no password into messages."""
    return (error.diag.message_primary or str(error) or type(error).__name__).strip().rstrip(".")
