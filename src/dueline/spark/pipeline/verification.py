"""Checks of tables: the store with bronze, bronze with silver, silver with gold."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile
from typing import Any, Final

import pyarrow as pa
from pyarrow.compute import field

from dueline.core.engine import Engine
from dueline.core.pagination import rows_in
from dueline.core.store import Store
from dueline.jobs.history import HISTORY_SUFFIX
from dueline.jobs.history_batch import size_of, unbundled
from dueline.spark.pipeline.bronze import key_of, period_of
from dueline.spark.pipeline.delta import Place, Table
from dueline.spark.pipeline.engine import Check, Say
from dueline.spark.pipeline.history_bounds import NO_END
from dueline.spark.pipeline.queries import Duck, Values, lines_of
from dueline.spark.pipeline.tables import BATCH, BRONZE, SILVER, open_table
from dueline.spark.reading.shards import history_shards

IDS: Final = pa.schema([("id", pa.string()), ("at", pa.timestamp("us", "UTC"))])
PORTION: Final = 200_000
"""Number of rows that are compared at once."""

MISSING: Final = """
    SELECT count(*) AS missing FROM stored
    WHERE NOT EXISTS (SELECT 1 FROM rows WHERE rows.id = stored.id)"""
CLAIMS: Final = """
    SELECT count(*) AS claims FROM (
      SELECT DISTINCT job_id, enqueued, attempt FROM rows
      WHERE worker <> '' AND batch <= :batch) AS once"""
ATTEMPTS: Final = """
    SELECT count(*) AS claims FROM (SELECT DISTINCT job_id, enqueued, attempt FROM rows) AS once"""
COUNTED: Final[Mapping[str, tuple[str, bool]]] = {
    "gold_minute": ("attempts", False),
    "gold_shard": ("attempts", False),
    "gold_lateness": ("attempts", True),
    "gold_run": ("attempts", True),
    "gold_start": ("started", True),
}
"""The column of each table that counts attempts, and whether only those with a start."""


def behind_of(table: Table, engine: Engine, names: Sequence[str]) -> list[Mapping[str, Any]]:
    """Return up to where each shard was copied, and the number of rows after it."""
    period = period_of(table)
    until_us = period.until_us or NO_END
    lines: list[Mapping[str, Any]] = []
    for queue in names:
        for shard in history_shards(engine, queue):
            copied_us = table.position(key_of(queue, shard))
            after_us = period.since_us if copied_us is None else copied_us + 1
            rows = rows_in(engine.store, queue + HISTORY_SUFFIX, shard, after=(after_us, b""))
            inside = takewhile(lambda row: row.at_us < until_us, rows)
            behind = sum(map(size_of, inside))
            lines.append({"queue": queue, "shard": shard, "copied_us": copied_us, "behind": behind})
    return lines


def verify(
    lake: Place, engine: Engine, names: Sequence[str], queries: Duck, say: Say
) -> list[Check]:  # fmt: skip
    """Compare the store with bronze, and the tables with each other."""
    bronze, silver = open_table(lake, BRONZE.name), open_table(lake, SILVER.name)
    if not bronze.rows():
        return [Check("bronze", is_good=True, finding="no rows yet")]
    missing = compared = 0
    for queue in names:
        for shard in history_shards(engine, queue):
            for stored in _stored(bronze, engine.store, queue, shard):
                missing += _missing(bronze, queue, shard, stored, queries)
                compared += stored.num_rows
                say(f"verify: {compared:,} rows of the store are compared")
    words = f"{bronze.rows():,} rows, {missing:,} of the store's are missing"
    checks = [Check("bronze holds the store's history", not missing, words)]
    checks.append(_check_silver(lake, bronze, silver, queries))
    rows, at = silver.rows(), silver.position(BATCH) or 0
    started = 0
    if silver.exists():
        has_start = field("started").is_valid()
        started = silver.view().dataset().count_rows(filter=has_start)
    for name, (column, needs_start) in COUNTED.items():
        wanted = started if needs_start else rows
        table = open_table(lake, name)
        words = f"{name} counts silver"
        counted_at = table.position(BATCH)
        if counted_at is not None and silver.exists() and counted_at != at:
            finding = "not compared: it holds other batches than silver"
            checks.append(Check(words, is_good=False, finding=finding, is_behind=True))
            continue
        counted = _sum(table, column, queries)
        finding = f"{counted:,} attempts, {wanted:,} in silver"
        checks.append(Check(words, counted == wanted, finding))
    return checks


def _stored(bronze: Table, store: Store, queue: str, shard: int) -> Iterator[pa.Table]:
    """Yield ids and times of the store's rows that bronze should hold."""
    end_us = bronze.position(key_of(queue, shard))
    if end_us is None:
        return
    since_us = period_of(bronze).since_us
    rows = rows_in(store, queue + HISTORY_SUFFIX, shard, after=(since_us, b""))
    ids: list[dict[str, Any]] = []
    for row in takewhile(lambda row: row.at_us <= end_us, rows):
        ids += [{"id": attempt.id.hex(), "at": row.at_us} for attempt in unbundled(row)]
        if len(ids) >= PORTION:
            yield pa.Table.from_pylist(ids, IDS)
            ids = []
    if ids:
        yield pa.Table.from_pylist(ids, IDS)


def _missing(bronze: Table, queue: str, shard: int, stored: pa.Table, queries: Duck) -> int:
    """Count the rows of a shard that bronze lacks; only files of their time are read."""
    at = stored.column("at")
    low, high = at[0].value, at[-1].value
    files = [
        file
        for file in bronze.files()
        if file.may_hold("at", low, high) and file.may_hold("queue", queue, queue)
    ]
    if not files:
        return int(stored.num_rows)
    where = (field("queue") == queue) & (field("shard") == shard)
    where &= (field("at") >= at[0]) & (field("at") <= at[-1])
    rows = bronze.view(files).dataset().to_table(["id"], filter=where)
    (line,) = lines_of(queries.run(MISSING, {"stored": stored, "rows": rows}))
    return int(line["missing"])


def _check_silver(lake: Place, bronze: Table, silver: Table, queries: Duck) -> Check:
    """Compare silver with the batches of bronze that it should hold."""
    name, at = "silver has each attempt once", silver.position(BATCH) or 0
    left = (bronze.position(BATCH) or 0) - at
    if not silver.exists():
        is_new = not open_table(lake, "gold_minute").exists()
        return Check(name, is_good=False, finding="it does not exist yet", is_behind=is_new)
    claims = _by_day(bronze, CLAIMS, queries, {"batch": at})
    single = _by_day(silver, ATTEMPTS, queries, {})
    rows = silver.view().dataset().count_rows()
    words = f"{rows:,} rows, {single:,} attempts; {claims:,} in bronze"
    is_right = rows == single == claims
    if left:
        words += f"; {left} later batch(es) of bronze are missing"
    return Check(name, is_right and not left, words, is_right and left > 0)


def _by_day(table: Table, sql: str, queries: Duck, values: Values) -> int:
    """Add up a count over the days of a table, one after the other."""
    days: dict[str | None, list[Any]] = {}
    for file in table.files():
        days.setdefault(file.day, []).append(file)
    return sum(
        lines_of(queries.run(sql, {"rows": table.view(files)}, values))[0]["claims"]
        for files in days.values()
    )


def _sum(table: Table, column: str, queries: Duck) -> int:
    if not table.exists():
        return 0
    sql = f"SELECT coalesce(sum({column}), 0) AS total FROM rows"  # noqa: S608  (a name of ours)
    return int(lines_of(queries.run(sql, {"rows": table.view()}))[0]["total"])
