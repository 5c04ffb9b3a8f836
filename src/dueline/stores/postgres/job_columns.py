"""Jobs of a lane by columns: the server joins the values of each column into one.

A client that gets one value a column, rather than twenty a row, does no work for each row. Most
waiting jobs have the same values in most columns; the server only says so.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from psycopg import errors

from dueline.core.job import JobId
from dueline.core.job_columns import RESTING, Column, JobColumns, Packed, Same, Sample, columns_in
from dueline.core.lane import Lane
from dueline.core.store import Place
from dueline.stores.postgres import jobs, lanes
from dueline.stores.postgres.database import GREATEST, LEAST, Database
from dueline.stores.postgres.job_rows import TYPES

_COMMON: Final = frozenset({"task", "codec", *RESTING})
"""Columns that often have one value; the others are read for each row at once."""

_ID_BYTES: Final = 16
_BLOCKS: Final = 300
"""Blocks of the table in a sample."""

_SHRINK: Final = 8
"""A page of more than a gigabyte is read again with this part of its rows."""

_SHARE: Final = (
    "SELECT least(100, 100.0 * %s * current_setting('block_size')::bigint"
    " / greatest(1, pg_relation_size('@jobs')))::float8"
)
_SAMPLE: Final = (
    f"WITH share AS MATERIALIZED ({_SHARE} AS percent)"
    " SELECT lane, pos_us, id, (SELECT percent FROM share) FROM @jobs"
    f" TABLESAMPLE SYSTEM (({_SHARE})) REPEATABLE (0) ORDER BY lane, pos_us, id"
)
_LANES: Final = (
    "SELECT id, queue, shard, bucket, priority, tenant FROM @lanes WHERE id = ANY(%s::bigint[])"
)


def walk(
    database: Database,
    lane: Lane,
    names: frozenset[str],
    *,
    after: Place | None,
    until: Place | None,
    limit: int,
    different: frozenset[str],
) -> JobColumns:
    """Read a page of a lane by columns, in the order of positions."""
    names -= {"id"}  # which is read in any case
    bound = (*lane, *(after or (LEAST, b"")), *(until or (GREATEST, b"")))
    each = (names - _COMMON) | (names & different)
    while True:
        try:
            (row,) = database.fetch(_query(names, each), (*bound, limit))
        except errors.ProgramLimitExceeded:
            if limit == 1:
                raise
            limit = max(1, limit // _SHRINK)
            continue
        many, last_us, joined, is_busy, *cells = row
        if not many:
            return JobColumns(0, {}, None)
        if len(joined) != many * _ID_BYTES:  # by another program
            page = jobs.walk(database, lane, after=after, until=until, limit=limit)
            return columns_in(page, names)
        rest = iter(cells)
        columns: dict[str, Column] = {}
        mixed = set(names & RESTING.keys()) - each if is_busy else set()
        for name in sorted(names):
            if name in each:
                columns[name] = Packed(next(rest), next(rest) if TYPES[name] != "bigint" else b"")
            elif name in RESTING:
                columns[name] = Same(RESTING[name])
            else:
                least, most = next(rest), next(rest)
                columns[name] = Same(least)
                if least != most:
                    mixed.add(name)
        if not mixed:
            columns["id"] = Packed(joined)
            place = last_us, JobId(joined[-_ID_BYTES:])
            return JobColumns(many, columns, place if many == limit else None)
        each |= mixed


def sample(database: Database, lanes_of: Sequence[Lane], *, most: int) -> Sample:
    """Return places of rows in a few blocks of the table."""
    rows = database.fetch(_SAMPLE, (_BLOCKS, _BLOCKS))
    if not rows:
        return Sample(0, {})
    kept = -(-len(rows) // most)
    by_number: dict[int, list[Place]] = {}
    for number, pos_us, job_id, _ in rows:
        by_number.setdefault(number, []).append((pos_us, JobId(job_id)))
    wanted = set(lanes_of)
    places = {
        lane: by_number[number][kept - 1 :: kept]
        for number, *cells in database.fetch(_LANES, (list(by_number),))
        if (lane := Lane(*cells)) in wanted
    }
    return Sample(kept * 100 / rows[0][3], places)


@lru_cache
def _query(names: frozenset[str], each: frozenset[str]) -> str:
    """Return the query of a page.

    Args:
      names: The columns.
      each: Those whose values are joined; of the others it says whether they have one value.
    """
    columns: list[str] = []
    busy = [
        f"{name} <> {_literal(RESTING[name])}" for name in sorted((names & RESTING.keys()) - each)
    ]
    for name in sorted(names):
        if name in each and TYPES[name] == "bigint":
            columns.append(f"string_agg(int8send({name}), '')")
        elif name in each:
            joined = f"string_agg({name}, '')"
            if TYPES[name] == "text":
                joined = f"convert_to({joined}, 'UTF8')"
            columns += [joined, f"string_agg(int4send(octet_length({name})), '')"]
        elif name not in RESTING:
            columns += [f"min({name})", f"max({name})"]
    is_busy = f"bool_or({' OR '.join(busy)})" if busy else "false"
    read = ", ".join(sorted({"pos_us", "id", *names}))
    first = ["count(*)", "max(pos_us)", "string_agg(id, '')", is_busy]
    return (
        f"SELECT {', '.join([*first, *columns])}"
        f" FROM (SELECT {read} FROM @jobs WHERE lane = {lanes.NUMBER} AND (pos_us, id) > (%s, %s)"
        " AND (pos_us, id) <= (%s, %s) ORDER BY pos_us, id LIMIT %s) AS jobs"
    )


def _literal(value: object) -> str:
    return str(int(value)) if isinstance(value, int) else "''"
