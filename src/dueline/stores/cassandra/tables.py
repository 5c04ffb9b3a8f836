"""What becomes of a keyspace's tables as they are used.

How large partitions are, what reads cross, and whether the tables are repaired. What a user may not
read, or a node does not say, is left out.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC
from typing import Final

from dueline.core.clock import SECOND_US
from dueline.core.durations import span_text
from dueline.core.errors import DuelineError
from dueline.stores.cassandra.answers import Rows
from dueline.stores.cassandra.session import CassandraSession

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


def describe_tables(session: CassandraSession, *, now_us: int) -> Mapping[str, str]:
    """Say how the tables are defined, what reading them meets, and when they were repaired."""
    facts: dict[str, str] = {}
    defined = _asked(session, _DEFINED)
    for table, compaction, _ in defined:
        if table == "jobs":
            facts["compaction"] = compaction["class"].rpartition(".")[2]
    if defined:
        kept_us = min(seconds for _, _, seconds in defined) * SECOND_US
        facts["deleted rows are kept"] = span_text(kept_us)
    if largest := _most(_asked_each(session, _LARGEST)):
        facts["largest partition"] = "{} MiB in {}".format(*largest)
    if crossed := _most(_asked_each(session, _CROSSED)):
        facts["deleted rows a read (p99)"] = "{} in {}".format(*crossed)
    for (made_us,) in _asked(session, _MADE):
        facts["keyspace is old"] = span_text(max(0, now_us - made_us))
    repaired = [
        finished_at.replace(tzinfo=UTC).timestamp()
        for finished_at, status in _asked(session, _REPAIRED)
        if status == "SUCCESS" and finished_at is not None
    ]
    if repaired:
        facts["repaired ago"] = span_text(max(0, now_us - round(max(repaired) * SECOND_US)))
    return facts


def _asked(session: CassandraSession, text: str) -> Rows:
    try:
        return session.ask(text.format(keyspace=session.place.keyspace))
    except DuelineError:  # a user may read less than all, a node be too old
        return []


def _asked_each(session: CassandraSession, text: str) -> Iterable[Sequence[object]]:
    answers = session.ask_each(text.format(keyspace=session.place.keyspace))
    return [row for rows in answers.values() for row in rows or ()]


def _most(rows: Iterable[Sequence[object]]) -> tuple[int, str] | None:
    """Pick the table with the largest figure."""
    figures = [(round(float(str(figure))), str(table)) for table, figure in rows]
    return max(figures, default=None)
