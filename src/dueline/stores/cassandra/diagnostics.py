"""Facts of a Cassandra cluster, for `dueline doctor`.

Every local node is asked, since settings and clocks differ between nodes.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC
from typing import Final
from uuid import UUID

from dueline.core.clock import SECOND_US, Clock
from dueline.core.durations import span_text
from dueline.core.errors import DuelineError
from dueline.stores.cassandra.answers import Rows
from dueline.stores.cassandra.connection import VERSION_MIN
from dueline.stores.cassandra.guard import STRAY_ANSWERS, StrayAnswers, is_effective
from dueline.stores.cassandra.schema import check
from dueline.stores.cassandra.session import CassandraSession

NOW: Final = "SELECT now() FROM system.local"
NOW_COLUMNS: Final = ("system.now()",)

_VERSION: Final = "SELECT release_version, now() FROM system.local"
_UUID_EPOCH_US: Final = -12_219_292_800 * SECOND_US  # 1582-10-15, where version 1 counts from
_FACTS: Final = {
    "paxos": "paxos_variant",
    "paxos state": "paxos_state_purging",
    "commit log": "commitlog_sync",
}
"""Settings of a node, by the names of the facts."""

_SETTINGS: Final = (
    "SELECT name, value FROM system_views.settings"
    f" WHERE name IN ({', '.join(map(repr, _FACTS.values()))})"
)
_LOSSES: Final = {
    "batch": "nothing is lost",
    "group": "nothing is lost",
    "periodic": "what the last sync of every replica missed is lost (commitlog_sync: periodic)",
}

PURGING: Final = ("UnifiedCompactionStrategy", "LeveledCompactionStrategy")
"""Compaction strategies that free the space of rows which are deleted one by one."""

BY_TIME: Final = ("TimeWindowCompactionStrategy", "DateTieredCompactionStrategy")
"""Strategies that never do; no table may have one."""

_PURGED: Final = ("jobs", "stream_rows")
"""Tables that need one of PURGING."""

_LOST_MACHINES: Final = (
    "no: no replica",
    "no: one replica",
    "nothing is lost, and the queue stops until it is back",
    "nothing is lost, and the queue goes on",
)
"""Effect of the loss of one node, by the number of replicas."""


_DEFINED: Final = (
    "SELECT table_name, compaction, gc_grace_seconds FROM system_schema.tables"
    " WHERE keyspace_name = '{keyspace}'"
)
_LARGEST: Final = (
    "SELECT table_name, mebibytes FROM system_views.max_partition_size"
    " WHERE keyspace_name = '{keyspace}'"
)
_CROSSED: Final = (
    "SELECT table_name, p99th FROM system_views.tombstones_per_read"
    " WHERE keyspace_name = '{keyspace}'"
)
_MADE: Final = "SELECT writetime(value) FROM {keyspace}.about WHERE name = 'schema'"
_REPAIRED: Final = (
    "SELECT finished_at, status FROM system_distributed.repair_history"
    " WHERE keyspace_name = '{keyspace}' AND columnfamily_name = 'jobs' ORDER BY id DESC LIMIT 1000"
)


def instant_us(made: UUID) -> int:
    """Return the time of a version 1 id, in microseconds UTC."""
    return made.time // 10 + _UUID_EPOCH_US


def middle_us(readings: Sequence[tuple[int, int]], now_us: int) -> int:
    """Return the median of several clocks, the later one of two.

    Args:
      readings: The time of each clock, and the monotonic time when its answer arrived.
      now_us: The monotonic time now. Callers take the result as the time half-way between the
        request and now.
    """
    facts = sorted(instant_us + (now_us - came_us) // 2 for instant_us, came_us in readings)
    return facts[len(facts) // 2]


def describe(session: CassandraSession, clock: Clock) -> Mapping[str, str]:
    """Return facts of the servers, their settings and the replication.

    Args:
      session: The session.
      clock: The machine's clock, which measures how long nodes take to answer.

    Raises:
      ConfigError: The keyspace does not exist or lacks tables.
      SchemaMismatch: The tables are of another version.
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
    facts = {
        fact: _all([setting.get(name) for setting in settings]) for fact, name in _FACTS.items()
    }
    if not settings:  # this user may not read them
        facts = {"settings": "hidden"}
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
        "partitions": "one for each bucket of a shard, priority and tenant",
        **_tables(session, now_us=clock.wall_us()),
        "consistency": session.place.consistency,
        "replication": replication["class"].rpartition(".")[2],
        "replicas": _counts(replicas),
        **facts,
        "encrypted": "no" if session.place.tls is None else "yes",
        "survives a process crash": "nothing is lost",
        "survives loss of power": _loss(facts.get("commit log")),
        "survives loss of the machine": _LOST_MACHINES[min(len(_LOST_MACHINES) - 1, least)],
    }


def _strays(answers: StrayAnswers) -> str:
    return f"{answers.dropped} dropped, {answers.closed} connections closed, in this process"


def _loss(commit_log: str | None) -> str:
    """Return what a loss of power loses, by the setting of the commit log."""
    return "unknown" if commit_log is None else _LOSSES.get(commit_log, _LOSSES["periodic"])


def _answers(by_host: Mapping[str, Rows | None]) -> Sequence[Rows]:
    return [rows for rows in by_host.values() if rows is not None]


def _apart_us(instants_us: Sequence[int], delay_us: int) -> int:
    """Return the minimum difference of clocks that were read within a duration."""
    return max(0, max(instants_us, default=0) - min(instants_us, default=0) - delay_us)


def _all(values: Sequence[str | None]) -> str:
    """Join the distinct values of all nodes."""
    return ", ".join(sorted({value or "unknown" for value in values})) or "unknown"


def _counts(by_name: Mapping[str, object]) -> str:
    return ", ".join(f"{name}: {count}" for name, count in sorted(by_name.items()))


def _tables(session: CassandraSession, *, now_us: int) -> Mapping[str, str]:
    """Report sizes, deleted rows and repairs of tables; what a node does not report is omitted."""
    facts: dict[str, str] = {}
    defined = _rows_of(session, _DEFINED)
    if defined:
        facts["compaction"] = compaction_of(
            {table: compaction["class"].rpartition(".")[2] for table, compaction, _ in defined}
        )
        kept_us = min(seconds for _, _, seconds in defined) * SECOND_US
        facts["deleted rows are kept"] = span_text(kept_us)
    if largest := _most(_node_rows(session, _LARGEST)):
        facts["largest partition"] = "{} MiB in {}".format(*largest)
    if crossed := _most(_node_rows(session, _CROSSED)):
        facts["deleted rows a read (p99)"] = "{} in {}".format(*crossed)
    for (made_us,) in _rows_of(session, _MADE):
        facts["keyspace is old"] = span_text(max(0, now_us - made_us))
    repaired = [
        finished_at.replace(tzinfo=UTC).timestamp()
        for finished_at, status in _rows_of(session, _REPAIRED)
        if status == "SUCCESS" and finished_at is not None
    ]
    if repaired:
        facts["repaired ago"] = span_text(max(0, now_us - round(max(repaired) * SECOND_US)))
    return facts


def compaction_of(by_table: Mapping[str, str]) -> str:
    """Return the strategies that keep deleted rows, with their tables; else that of `jobs`."""
    wrong: dict[str, list[str]] = {}
    for table, strategy in sorted(by_table.items()):
        is_wrong = strategy not in PURGING if table in _PURGED else strategy in BY_TIME
        if is_wrong:
            wrong.setdefault(strategy, []).append(table)
    texts = [f"{strategy} in {', '.join(tables)}" for strategy, tables in wrong.items()]
    return "; ".join(texts) or by_table.get("jobs", "unknown")


def _rows_of(session: CassandraSession, text: str) -> Rows:
    try:
        return session.ask(text.format(keyspace=session.place.keyspace))
    except DuelineError:  # a user may read less than all, a node be too old
        return []


def _node_rows(session: CassandraSession, text: str) -> Iterable[Sequence[object]]:
    answers = session.ask_each(text.format(keyspace=session.place.keyspace))
    return [row for rows in answers.values() for row in rows or ()]


def _most(rows: Iterable[Sequence[object]]) -> tuple[int, str] | None:
    """Return the largest figure and its table."""
    figures = [(round(float(str(figure))), str(table)) for table, figure in rows]
    return max(figures, default=None)
