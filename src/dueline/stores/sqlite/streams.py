"""Streams in SQLite's tables.

Each function runs inside one transaction, so an append reads the watermark and inserts atomically:
no row is ever inserted at or below a watermark that was raised before.
Hot path: the benchmark `history`.
"""

from collections.abc import Sequence
from itertools import chain
from typing import Any, Final

from dueline.core.store import Row, RowPage
from dueline.core.tuples import field, made
from dueline.stores.sqlite.connection import Database, fetch, first
from dueline.stores.sqlite.jobs import GREATEST, LEAST

NOTHING_CLOSED: Final = -1
EXPIRED_MAX: Final = 2000
"""Maximum number of rows that one transaction deletes, so that writers wait for a short time."""

_ROWS: Final = 50  # of one statement
_APPEND: Final = (
    "INSERT OR IGNORE INTO rows (stream, shard, at_us, id, body) VALUES (?, ?, ?, ?, ?)"
)
_APPEND_ROWS: Final = _APPEND + ", (?, ?, ?, ?, ?)" * (_ROWS - 1)

_shard_of, _instant = field(Row, "stream", "shard"), field(Row, "at_us")


def append(database: Database, rows: Sequence[Row]) -> list[int]:
    """Append rows above their watermarks; return the `at_us` of each."""
    for shard in set(map(_shard_of, rows)):
        closed = mark_of(database, *shard)
        if closed >= min(map(_instant, rows)):
            rows = [
                _above(database, row, closed) if _shard_of(row) == shard else row for row in rows
            ]
    full = len(rows) - len(rows) % _ROWS
    for start in range(0, full, _ROWS):
        database.execute(_APPEND_ROWS, tuple(chain.from_iterable(rows[start : start + _ROWS])))
    if full < len(rows):
        database.executemany(_APPEND, rows[full:])
    return list(map(_instant, rows))


def _above(database: Database, row: Row, closed: int) -> Row:
    """Return the row, moved above the watermark unless it exists."""
    if row.at_us > closed:
        return row
    is_there = first(
        database,
        "SELECT 1 FROM rows WHERE stream = ? AND shard = ? AND at_us = ? AND id = ?",
        (row.stream, row.shard, row.at_us, row.id),
    )
    return row if is_there else row._replace(at_us=closed + 1)


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
    fetched = fetch(
        database,
        "SELECT at_us, id, body FROM rows WHERE stream = ? AND shard = ?"
        " AND (at_us, id) > (?, ?) AND at_us <= ? ORDER BY at_us, id LIMIT ? OFFSET ?",
        (
            stream,
            shard,
            *(after or (LEAST, b"")),
            GREATEST if until_us is None else until_us,
            limit,
            skip,
        ),
    )
    head: tuple[Any, ...] = (stream, shard)
    rows = made(Row, [head + cells for cells in fetched])
    return RowPage(rows, (rows[-1].at_us, rows[-1].id) if rows else after)


def mark_of(database: Database, stream: str, shard: int) -> int:
    """Return a shard's watermark."""
    mark = first(
        database,
        "SELECT closed_us FROM dueline_stream_marks WHERE stream = ? AND shard = ?",
        (stream, shard),
    )
    return NOTHING_CLOSED if mark is None else int(mark)


def close_until(database: Database, stream: str, shard: int, at_us: int) -> int:
    """Raise a shard's watermark."""
    database.execute(
        "INSERT INTO dueline_stream_marks (stream, shard, closed_us) VALUES (?, ?, ?)"
        " ON CONFLICT DO UPDATE SET closed_us = max(closed_us, excluded.closed_us)",
        (stream, shard, at_us),
    )
    return mark_of(database, stream, shard)


def expire(database: Database, stream: str, shard: int, before_us: int) -> bool:
    """Delete rows below a timestamp, oldest first; return whether there may be more."""
    until_us = min(before_us - 1, mark_of(database, stream, shard))
    database.execute(
        "DELETE FROM rows WHERE stream = ?1 AND shard = ?2 AND at_us <= ?3 AND (at_us, id) <="
        " (SELECT max(at_us), id FROM (SELECT at_us, id FROM rows WHERE stream = ?1 AND shard = ?2"
        " AND at_us <= ?3 ORDER BY at_us, id LIMIT ?4))",
        (stream, shard, until_us, EXPIRED_MAX),
    )
    return database.changes() > 0
