"""Streams in PostgreSQL's tables.

An append is in a transaction that may stay open for long, of which others see nothing but its
locks. So it takes a shared advisory lock whose number has the lowest position that it may use, and
then reads up to where the shard is closing (rule F8). A process that raises the watermark first
stores up to where it closes, and then reads the locks: the watermark stays below the lowest
(rule F9). An open transaction delays the rows behind its own, and nobody waits for it.
Hot path: the benchmark `postgres-history`.
"""

import zlib
from collections.abc import Sequence
from typing import Final

from dueline.core.store import Row, RowPage
from dueline.core.tuples import field, made
from dueline.stores.postgres.arrays import columns_of
from dueline.stores.postgres.database import GREATEST, LEAST, SNAPSHOTS, Database, Query

EXPIRED_MAX = 2000
"""Maximum number of rows that one transaction deletes."""

_SHARD_BITS: Final = 21
"""Bits of a lock's number for the shard, below the sign. The others have milliseconds."""

_TIME_BITS: Final = 63 - _SHARD_BITS
_TIME_MAX: Final = 2**_TIME_BITS - 1

# A transaction that has a lower lock needs no other one: the setting says so, and ends with it.
_LOCK: Final = f"""
SELECT current_setting('transaction_isolation'), CASE WHEN held IS NULL OR held::bigint > ms THEN
  pg_advisory_xact_lock_shared((shard << {_TIME_BITS}) | ms)::text
  || set_config(name, ms::text, true) END
FROM (
  SELECT w.lock AS shard, 'dueline.append_' || w.lock AS name,
    nullif(current_setting('dueline.append_' || w.lock, true), '') AS held,
    greatest(0, least({_TIME_MAX}, greatest(w.at_us, m.closing_us + 1) / 1000)) AS ms
  FROM unnest(%s::text[], %s::bigint[], %s::bigint[], %s::bigint[])
    AS w (stream, shard, lock, at_us)
  LEFT JOIN @stream_marks m ON m.stream = w.stream AND m.shard = w.shard
) AS wanted
"""
_CLOSING: Final = (
    "SELECT w.stream, w.shard, coalesce(m.closing_us, -1)"
    " FROM unnest(%s::text[], %s::bigint[]) AS w (stream, shard)"
    " LEFT JOIN @stream_marks m ON m.stream = w.stream AND m.shard = w.shard"
)
_LOWEST: Final = f"""
SELECT min((classid::bigint << 32 | objid::bigint) & {_TIME_MAX}) * 1000 FROM pg_locks
WHERE locktype = 'advisory' AND objsubid = 1
  AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND (classid::bigint << 32 | objid::bigint) >> {_TIME_BITS} = %s
"""
_MARK: Final = f"""
SELECT coalesce((SELECT watermark_us FROM @stream_marks WHERE stream = %s AND shard = %s), -1),
  ({_LOWEST}) - 1
"""
_ANNOUNCE: Final = (
    "INSERT INTO @stream_marks AS m (stream, shard, closing_us) VALUES (%s, %s, %s)"
    " ON CONFLICT (stream, shard) DO UPDATE SET closing_us = excluded.closing_us"
    " WHERE m.closing_us < excluded.closing_us"
)
_CLOSE: Final = (
    "UPDATE @stream_marks SET watermark_us = greatest(watermark_us, least(%s::bigint,"
    f" ({_LOWEST}) - 1)) WHERE stream = %s AND shard = %s RETURNING watermark_us"
)

_THERE = (
    "SELECT place FROM unnest(%s::text[], %s::bigint[], %s::bigint[], %s::bytea[])"
    " WITH ORDINALITY AS w (stream, shard, at_us, id, place) JOIN @rows r ON r.stream = w.stream"
    " AND r.shard = w.shard AND r.at_us = w.at_us AND r.id = w.id"
)
_APPEND = (
    "INSERT INTO @rows (stream, shard, at_us, id, body) SELECT * FROM"
    " unnest(%s::text[], %s::bigint[], %s::bigint[], %s::bytea[], %s::bytea[])"
    " ON CONFLICT DO NOTHING"
)

_place_of = field(Row, "stream", "shard", "at_us", "id")  # of equal ones the first stays


def append(database: Database, rows: Sequence[Row]) -> list[int]:
    """Append rows above what is closing; return the `at_us` of each."""
    closed = _hold(database, rows)
    late = [place for place, row in enumerate(rows) if row.at_us <= closed[row.stream, row.shard]]
    if late:
        columns = columns_of(rows[place][:4] for place in late)
        there = {late[number - 1] for (number,) in database.fetch(_THERE, columns)}
        rows = list(rows)
        for place in late:
            if place not in there:
                row = rows[place]
                rows[place] = row._replace(at_us=closed[row.stream, row.shard] + 1)
    database.execute_later(_APPEND, columns_of(sorted(rows, key=_place_of)))
    return [row.at_us for row in rows]


def _hold(database: Database, rows: Sequence[Row]) -> dict[tuple[str, int], int]:
    """Return up to where shards are closed, which holds for these rows until the commit."""
    firsts: dict[tuple[str, int], int] = {}
    for row in rows:
        place = row.stream, row.shard
        firsts[place] = min(row.at_us, firsts.get(place, row.at_us))
    shards = columns_of(sorted(firsts))
    locks = columns_of(
        (*place, _lock_of(database.schema, *place), at_us)
        for place, at_us in sorted(firsts.items())
    )
    if database.apart is None:
        marks = database.fetch_after((_LOCK, locks), _CLOSING, shards)
    elif database.fetch(_LOCK, locks)[0][0] in SNAPSHOTS:  # perhaps older than the lock
        marks = database.apart(lambda other: other.fetch(_CLOSING, shards))
    else:
        marks = database.fetch(_CLOSING, shards)
    return {row[:2]: row[2] for row in marks}


def _lock_of(schema: str, stream: str, shard: int) -> int:
    """Return the part of a lock's number for a shard; 0 is left to others, who count from 1."""
    name = f"{schema}/{stream}/{shard}".encode()
    return zlib.crc32(name) % (2**_SHARD_BITS - 1) + 1


def tail(
    database: Database,
    stream: str,
    shard: int,
    *,
    after: tuple[int, bytes] | None,
    limit: int,
    until_us: int | None,
    skip: int = 0,
) -> RowPage:
    """Read a shard's rows in order."""
    fetched = database.fetch(
        "SELECT stream, shard, at_us, id, body FROM @rows WHERE stream = %s AND shard = %s"
        " AND (at_us, id) > (%s, %s) AND at_us <= %s ORDER BY at_us, id LIMIT %s OFFSET %s",
        (
            stream,
            shard,
            *(after or (LEAST, b"")),
            GREATEST if until_us is None else until_us,
            limit,
            skip,
        ),
    )
    rows = made(Row, fetched)
    return RowPage(rows, (rows[-1].at_us, rows[-1].id) if rows else after)


def mark_of(database: Database, stream: str, shard: int) -> int:
    """Return a shard's watermark."""
    row = database.first(
        "SELECT watermark_us FROM @stream_marks WHERE stream = %s AND shard = %s", (stream, shard)
    )
    return -1 if row is None else int(row[0])


def marks_of(database: Database, stream: str, shard: int) -> tuple[int, int]:
    """Return a shard's watermark, and up to where the locks let it rise."""
    lock = _lock_of(database.schema, stream, shard)
    ((mark, until),) = database.fetch(_MARK, (stream, shard, lock))
    return mark, GREATEST if until is None else until


def close_until(database: Database, stream: str, shard: int, at_us: int) -> tuple[None, Query]:
    """Announce up to where a shard is closed; return the query that raises its watermark.

    It must run after the commit of the announcement, and returns the watermark.
    """
    database.execute(_ANNOUNCE, (stream, shard, at_us))
    return None, (_CLOSE, (at_us, _lock_of(database.schema, stream, shard), stream, shard))


def expire(database: Database, stream: str, shard: int, before_us: int) -> bool:
    """Delete rows below a timestamp, oldest first; return whether there may be more."""
    until_us = min(before_us - 1, mark_of(database, stream, shard))
    deleted = database.execute(
        "DELETE FROM @rows WHERE ctid = ANY(ARRAY(SELECT ctid FROM @rows WHERE stream = %s"
        " AND shard = %s AND at_us <= %s ORDER BY at_us, id LIMIT %s FOR UPDATE SKIP LOCKED))",
        (stream, shard, until_us, EXPIRED_MAX),
    )
    return deleted == EXPIRED_MAX
