"""What a Cassandra cluster says of itself.

Every near node is asked: settings are a node's own, and so are clocks.
"""

from collections.abc import Mapping, Sequence
from typing import Final
from uuid import UUID

from dueline.core.clock import SECOND_US, Clock
from dueline.core.durations import span_text
from dueline.stores.cassandra.answers import Rows
from dueline.stores.cassandra.connection import VERSION_MIN
from dueline.stores.cassandra.guard import STRAY_ANSWERS, StrayAnswers, is_effective
from dueline.stores.cassandra.schema import check
from dueline.stores.cassandra.session import CassandraSession
from dueline.stores.cassandra.tables import describe_tables

NOW: Final = "SELECT now() FROM system.local"
NOW_COLUMNS: Final = ("system.now()",)

_VERSION: Final = "SELECT release_version, now() FROM system.local"
_UUID_EPOCH_US: Final = -12_219_292_800 * SECOND_US  # 1582-10-15, where version 1 counts from
_FACTS: Final = {
    "paxos": "paxos_variant",
    "paxos state": "paxos_state_purging",
    "commit log": "commitlog_sync",
}
"""Settings of a node, by the names of the facts that they are here."""

_SETTINGS: Final = (
    "SELECT name, value FROM system_views.settings"
    f" WHERE name IN ({', '.join(map(repr, _FACTS.values()))})"
)
_LOSSES: Final = {
    "batch": "nothing is lost",
    "group": "nothing is lost",
    "periodic": "what the last sync of every replica missed is lost (commitlog_sync: periodic)",
}


_LOST_MACHINES: Final = (
    "no: no replica",
    "no: one replica",
    "nothing is lost, and the queue stops until it is back",
    "nothing is lost, and the queue goes on",
)
"""What the loss of one node does, by the number of replicas."""


def instant_us(made: UUID) -> int:
    """Tell when a server made an id of its clock: microseconds UTC."""
    return made.time // 10 + _UUID_EPOCH_US


def middle_us(readings: Sequence[tuple[int, int]], now_us: int) -> int:
    """Return the middle of several clocks, the later one of two.

    Args:
      readings: what each clock said, and the monotonic time when its answer came.
      now_us: the monotonic time now; whoever asked takes the result for the time half-way
        between the question and now.
    """
    told = sorted(instant_us + (now_us - came_us) // 2 for instant_us, came_us in readings)
    return told[len(told) // 2]


def describe(session: CassandraSession, clock: Clock) -> Mapping[str, str]:
    """Say which servers there are, how they are set, how many replicas a row has.

    Args: clock: the machine's; its monotonic time tells how long the nodes took to answer.

    Raises: as `cassandra_schema.check`.
    """
    schema = check(session)
    settings: list[dict[str, str]] = [dict(rows) for rows in _answers(session.ask_each(_SETTINGS))]
    before_us = clock.monotonic_us()
    versions = session.ask_each(_VERSION)
    delay_us = clock.monotonic_us() - before_us
    answers = [rows[0] for rows in _answers(versions)]
    ((replication,),) = session.ask(
        "SELECT replication FROM system_schema.keyspaces"
        f" WHERE keyspace_name = '{session.place.keyspace}'"
    )
    silent = sorted(host for host, rows in versions.items() if rows is None)
    told = {fact: _all([one.get(name) for one in settings]) for fact, name in _FACTS.items()}
    if not settings:  # no node lets this user read them
        told = {"settings": "hidden"}
    replicas = {
        "anywhere" if name == "replication_factor" else name: int(count.partition("/")[0])
        for name, count in replication.items()
        if name != "class"
    }
    least = min(replicas.values(), default=0)
    return {
        "keyspace": str(session.place),
        "server": _all([version for version, _ in answers]),
        "server needed": ".".join(map(str, VERSION_MIN)),
        "stream guard": "on" if is_effective() else "off",
        "stray answers": _strays(STRAY_ANSWERS),
        "nodes": _counts(session.centres()),
        **({"nodes that are silent": ", ".join(silent)} if silent else {}),
        "nodes' clocks apart": span_text(
            _apart_us([instant_us(made) for _, made in answers], delay_us)
        ),
        "schema": schema,
        **describe_tables(session, now_us=clock.wall_us()),
        "consistency": session.place.consistency,
        "replication": replication["class"].rpartition(".")[2],
        "replicas": _counts(replicas),
        **told,
        "encrypted": "no" if session.place.tls is None else "yes",
        "survives a process crash": "nothing is lost",
        "survives loss of power": _loss(told.get("commit log")),
        "survives loss of the machine": _LOST_MACHINES[min(len(_LOST_MACHINES) - 1, least)],
    }


def _strays(found: StrayAnswers) -> str:
    return f"{found.dropped} dropped, {found.closed} connections closed, in this process"


def _loss(commit_log: str | None) -> str:
    """Tell what a loss of power takes, where the nodes may say how they keep their logs."""
    return "unknown" if commit_log is None else _LOSSES.get(commit_log, _LOSSES["periodic"])


def _answers(by_host: Mapping[str, Rows | None]) -> Sequence[Rows]:
    return [rows for rows in by_host.values() if rows is not None]


def _apart_us(instants_us: Sequence[int], delay_us: int) -> int:
    """Tell how far clocks are apart at least that were read within a time."""
    return max(0, max(instants_us, default=0) - min(instants_us, default=0) - delay_us)


def _all(values: Sequence[str | None]) -> str:
    """Name each value once: nodes may differ."""
    return ", ".join(sorted({value or "unknown" for value in values})) or "unknown"


def _counts(by_name: Mapping[str, object]) -> str:
    return ", ".join(f"{name}: {count}" for name, count in sorted(by_name.items()))
