"""The tables of a Cassandra keyspace, made and checked."""

from collections.abc import Iterator, Mapping
from importlib.resources import files
from typing import Final

from dueline.errors import SchemaMismatch
from dueline.stores.cassandra_session import KEYSPACE, CassandraSession

SCHEMA_VERSION: Final = 1
REPLICAS: Final = 3
"""How many replicas a new keyspace has in each data centre that has so many nodes."""

_NOTE: Final = "INSERT INTO {keyspace}.about (name, value) VALUES (?, ?) IF NOT EXISTS"
_NOTED: Final = "SELECT value FROM {keyspace}.about WHERE name = ?"
_UNIFIED: Final = "{'class': 'UnifiedCompactionStrategy', 'scaling_parameters': 'L4'}"
_LEVELED: Final = "{'class': 'LeveledCompactionStrategy'}"


def create(session: CassandraSession) -> None:
    """Make the keyspace and its tables; what is there stays as it is.

    A keyspace that is made here has three replicas in each data centre, or as many as there
    are nodes.
    """
    keyspace = session.place.keyspace
    replicas = "".join(
        f", '{centre}': {min(nodes, REPLICAS)}" for centre, nodes in session.centres().items()
    )
    made = (
        f"CREATE KEYSPACE IF NOT EXISTS {keyspace} WITH replication ="
        f" {{'class': 'NetworkTopologyStrategy'{replicas}}}"
    )
    session.define([made])
    session.define(_statements(keyspace, _major(session)))
    session.decide([(_NOTE, ("schema", str(SCHEMA_VERSION)))])


def check(session: CassandraSession) -> str:
    """Read the schema's version.

    Raises:
      ConfigError: there is no such keyspace, or it has no tables.
      SchemaMismatch: the tables are of another version.
    """
    ((found,),) = session.read(_NOTED, ("schema",)) or [("none",)]
    if found != str(SCHEMA_VERSION):
        raise SchemaMismatch(
            f"{session.place} has schema version {found}; this dueline uses {SCHEMA_VERSION}.",
            hint="Use the dueline version that made it.",
        )
    return str(found)


def describe(session: CassandraSession) -> Mapping[str, str]:
    """Say which server, how many replicas, how safe its commit log is; for people."""
    rows = session.ask("SELECT name, value FROM system_views.settings")
    set_to: dict[str, str] = {name: value for name, value in rows}  # noqa: C416  (of any tuples)
    (replication,) = session.ask(
        "SELECT replication FROM system_schema.keyspaces"
        f" WHERE keyspace_name = '{session.place.keyspace}'"
    )[0]
    return {
        "keyspace": str(session.place),
        "server": session.ask("SELECT release_version FROM system.local")[0][0],
        "schema": check(session),
        "consistency": session.place.consistency,
        "paxos": set_to.get("paxos_variant", "unknown"),
        "replicas": ", ".join(
            f"{name}: {count}" for name, count in replication.items() if name != "class"
        ),
        "commit log": set_to.get("commitlog_sync", "unknown"),
    }


def _major(session: CassandraSession) -> int:
    version = session.ask("SELECT release_version FROM system.local")[0][0]
    return int(version.split(".")[0])


def _statements(keyspace: str, major: int) -> Iterator[str]:
    text = (files("dueline.stores") / "cassandra.cql").read_text(encoding="utf-8")
    code = "\n".join(line for line in text.splitlines() if not line.startswith("--"))
    code = code.replace(KEYSPACE, keyspace)
    code = code.replace("{jobs_compaction}", _UNIFIED if major >= 5 else _LEVELED)  # noqa: PLR2004
    return (statement.strip() for statement in code.split(";") if statement.strip())
