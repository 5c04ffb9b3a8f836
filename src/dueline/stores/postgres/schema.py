"""Creates the tables."""

from importlib import resources
from typing import Final

import psycopg
from psycopg import Connection

from dueline.core.errors import ConfigError
from dueline.core.store import Migration
from dueline.stores.postgres.address import Address
from dueline.stores.postgres.connection import SCHEMA_VERSION, check_version
from dueline.stores.postgres.errors import translated

MIGRATE_S: Final = 60.0
"""Time limit of each statement, in seconds: longer than that of a trip."""

_LOCK = "SELECT pg_advisory_xact_lock(hashtext('dueline'), hashtext(%s))"


def create(connection: Connection, address: Address) -> Migration:
    """Create the schema and its tables in one transaction; processes that do so at once wait.

    Raises:
      ConfigError: The schema has tables of another program.
      SchemaMismatch: The tables are of another version; nothing was changed.
    """
    try:
        with connection.transaction():
            connection.execute(_LOCK, (address.schema,))
            return _create(connection, address)
    except psycopg.Error as error:
        raise translated(error, address) from error


def _create(connection: Connection, address: Address) -> Migration:
    schema = address.schema
    tables = {
        name
        for (name,) in connection.execute(
            "SELECT table_name FROM information_schema.tables WHERE table_schema = %s", (schema,)
        )
    }
    if "about" in tables:
        check_version(connection, address)
        return Migration((), str(SCHEMA_VERSION))
    if tables:
        raise ConfigError(
            f"The schema {schema} of {address} has tables of another program.",
            hint="Give dueline a schema of its own: ?schema=NAME.",
        )
    made = []
    if not connection.execute("SELECT to_regnamespace(%s)", (schema,)).fetchone()[0]:
        connection.execute(f"CREATE SCHEMA {schema}".encode())
        made.append(f"schema {schema}")
    script = resources.files(__package__).joinpath("schema.sql").read_text("utf-8")
    connection.execute(script.replace("@", f"{schema}.").encode(), prepare=False)
    connection.execute(
        f"INSERT INTO {schema}.about VALUES ('schema', %s)".encode(), (str(SCHEMA_VERSION),)
    )
    connection.execute(
        f"INSERT INTO {schema}.about VALUES ('id', gen_random_uuid()::text)".encode()
    )
    names = connection.execute(
        "SELECT table_name FROM information_schema.tables WHERE table_schema = %s ORDER BY 1",
        (schema,),
    )
    made += [f"table {name}" for (name,) in names]
    return Migration(made, str(SCHEMA_VERSION))
