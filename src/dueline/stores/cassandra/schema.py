"""Creates and checks the tables of a Cassandra keyspace."""

import re
from collections.abc import Iterator, Sequence
from importlib.resources import files
from typing import Final

from dueline.core.errors import ConfigError, SchemaMismatch
from dueline.core.store import Migration
from dueline.stores.cassandra.connection import MIGRATE
from dueline.stores.cassandra.session import KEYSPACE, CassandraSession

SCHEMA_VERSION: Final = 2
REPLICAS: Final = 3
"""Number of replicas of a new keyspace in each data centre, if it has that many nodes."""

_NOTE: Final = "INSERT INTO {keyspace}.about (name, value) VALUES (?, ?) IF NOT EXISTS"
_NOTED: Final = "SELECT value FROM {keyspace}.about WHERE name = ?"
_UNIFIED: Final = "{'class': 'UnifiedCompactionStrategy', 'scaling_parameters': 'L4'}"
_LEVELED: Final = "{'class': 'LeveledCompactionStrategy'}"
_MADE: Final = re.compile(r"CREATE TABLE IF NOT EXISTS \w+\.(\w+)")


def create(session: CassandraSession) -> Migration:
    """Create the keyspace and the tables that do not exist.

    A new keyspace has three replicas in each data centre, or one for each node if there are fewer.

    Raises:
      ConfigError: The keyspace has tables of another program.
      SchemaMismatch: The tables are of another version.
    """
    keyspace = session.place.keyspace
    made: list[str] = []
    if not _has_keyspace(session):
        replicas = "".join(
            f", '{centre}': {min(nodes, REPLICAS)}" for centre, nodes in session.centres().items()
        )
        statement = (
            f"CREATE KEYSPACE IF NOT EXISTS {keyspace} WITH replication ="
            f" {{'class': 'NetworkTopologyStrategy'{replicas}}}"
        )
        session.define([statement])
        made.append(f"keyspace {keyspace}")
    missing = _missing(session)
    if missing:
        session.define(statement for _, statement in missing)
        made += [f"table {table}" for table, _ in missing]
    session.decide([(_NOTE, ("schema", str(SCHEMA_VERSION)))])
    return Migration(made, check(session))


def _missing(session: CassandraSession) -> Sequence[tuple[str, str]]:
    """Return the missing tables, each with its statement."""
    keyspace = session.place.keyspace
    rows = session.ask(
        f"SELECT table_name FROM system_schema.tables WHERE keyspace_name = '{keyspace}'"
    )
    present = {table for (table,) in rows}
    wanted = dict(_tables(keyspace, _major(session)))
    foreign = sorted(present & wanted.keys())
    if next(iter(wanted)) not in present:  # it is created first
        if foreign:
            raise ConfigError(
                f"{session.place} has tables of another program: {', '.join(foreign)}.",
                hint="Give dueline a keyspace of its own.",
            )
    elif session.read(_NOTED, ("schema",)):
        check(session)
    return [(table, made) for table, made in wanted.items() if table not in present]


def check(session: CassandraSession) -> str:
    """Return the schema's version.

    Raises:
      ConfigError: The keyspace does not exist or lacks tables.
      SchemaMismatch: The tables are of another version.
    """
    noted = session.read(_NOTED, ("schema",))
    if not noted:
        raise ConfigError(f"{session.place} is set up in part only.", hint=MIGRATE)
    ((version,),) = noted
    if version == "1":
        raise SchemaMismatch.too_old(f"{session.place} has schema version 1")
    if version != str(SCHEMA_VERSION):
        raise SchemaMismatch(
            f"{session.place} has schema version {version}; this dueline uses {SCHEMA_VERSION}.",
            hint="Use the dueline version that made it.",
        )
    return str(version)


def _has_keyspace(session: CassandraSession) -> bool:
    return bool(
        session.ask(
            "SELECT keyspace_name FROM system_schema.keyspaces"
            f" WHERE keyspace_name = '{session.place.keyspace}'"
        )
    )


def _major(session: CassandraSession) -> int:
    version = session.ask("SELECT release_version FROM system.local")[0][0]
    return int(version.split(".")[0])


def _compaction(major: int) -> str:
    return _UNIFIED if major >= 5 else _LEVELED  # noqa: PLR2004


def _tables(keyspace: str, major: int) -> Iterator[tuple[str, str]]:
    """Yield every table with its statement, in the order of creation."""
    text = (files("dueline.stores.cassandra") / "schema.cql").read_text(encoding="utf-8")
    code = "\n".join(line for line in text.splitlines() if not line.startswith("--"))
    code = code.replace(KEYSPACE, keyspace)
    code = code.replace("{jobs_compaction}", _compaction(major))
    for statement in filter(None, map(str.strip, code.split(";"))):
        named = _MADE.match(statement)
        assert named is not None
        yield named[1], statement
