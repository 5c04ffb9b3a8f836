"""Streams in PostgreSQL's tables.

An append holds the watermark of its shard FOR SHARE until it commits. A process that raises the
watermark takes it FOR UPDATE, and waits for a short time. A caller's transaction that stays open
delays the watermark, and no other producer.
"""

from collections.abc import Collection, Sequence

from dueline.core.errors import StoreUnavailable
from dueline.core.store import Row, RowPage
from dueline.core.tuples import field, made
from dueline.stores.postgres.arrays import columns_of
from dueline.stores.postgres.database import GREATEST, LEAST, Database
from dueline.stores.postgres.lanes import LOCK_WAIT

EXPIRED_MAX = 2000
"""Maximum number of rows that one transaction deletes."""

_HOLD = (
    "SELECT m.stream, m.shard, m.closed_us FROM unnest(%s::text[], %s::bigint[])"
    " AS w (stream, shard) JOIN @stream_marks m ON m.stream = w.stream AND m.shard = w.shard"
    " FOR SHARE OF m"
)
_MAKE = (
    "INSERT INTO @stream_marks (stream, shard) SELECT * FROM unnest(%s::text[], %s::bigint[])"
    " ON CONFLICT DO NOTHING"
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
    """Append rows above their watermarks; return the `at_us` of each."""
    closed = _hold(database, {(row.stream, row.shard) for row in rows})
    late = [place for place, row in enumerate(rows) if row.at_us <= closed[row.stream, row.shard]]
    if late:
        some = columns_of(rows[place][:4] for place in late)
        there = {late[number - 1] for (number,) in database.fetch(_THERE, some)}
        rows = list(rows)
        for place in late:
            if place not in there:
                row = rows[place]
                rows[place] = row._replace(at_us=closed[row.stream, row.shard] + 1)
    database.execute_later(_APPEND, columns_of(sorted(rows, key=_place_of)))
    return [row.at_us for row in rows]


def _hold(database: Database, shards: set[tuple[str, int]]) -> dict[tuple[str, int], int]:
    """Return watermarks, which stay as they are until the commit."""
    places = columns_of(sorted(shards))
    held = {row[:2]: row[2] for row in database.fetch(_HOLD, places)}
    if len(held) < len(shards):
        if database.apart is None:
            make_marks(database, shards)
        else:
            database.apart(lambda other: make_marks(other, shards))
        held = {row[:2]: row[2] for row in database.fetch(_HOLD, places)}
    if len(held) < len(shards):
        stream, _ = min(shards - held.keys())
        raise StoreUnavailable(
            f"A shard of {stream} was created after the transaction took its snapshot.",
            hint="Roll the transaction back and repeat it.",
        )
    return held


def make_marks(database: Database, shards: Collection[tuple[str, int]]) -> None:
    """Create the watermarks of shards that have none."""
    database.execute(_MAKE, columns_of(sorted(shards)))


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
    found = database.fetch(
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
    rows = made(Row, found)
    return RowPage(rows, (rows[-1].at_us, rows[-1].id) if rows else after)


def mark_of(database: Database, stream: str, shard: int) -> int:
    """Return a shard's watermark."""
    row = database.first(
        "SELECT closed_us FROM @stream_marks WHERE stream = %s AND shard = %s", (stream, shard)
    )
    return -1 if row is None else int(row[0])


def close_until(database: Database, stream: str, shard: int, at_us: int) -> int:
    """Raise a shard's watermark.

    Raises:
      LockNotAvailable: An append was not committed in time.
    """
    database.execute(_MAKE, ([stream], [shard]))
    database.fetch("SELECT set_config('lock_timeout', %s, true)", (LOCK_WAIT,))
    row = database.first(
        "SELECT closed_us FROM @stream_marks WHERE stream = %s AND shard = %s FOR UPDATE",
        (stream, shard),
    )
    assert row is not None
    if row[0] < at_us:
        database.execute(
            "UPDATE @stream_marks SET closed_us = %s WHERE stream = %s AND shard = %s",
            (at_us, stream, shard),
        )
    return max(int(row[0]), at_us)


def expire(database: Database, stream: str, shard: int, before_us: int) -> bool:
    """Delete rows below a timestamp, oldest first; return whether there may be more."""
    until_us = min(before_us - 1, mark_of(database, stream, shard))
    deleted = database.execute(
        "DELETE FROM @rows WHERE ctid = ANY(ARRAY(SELECT ctid FROM @rows WHERE stream = %s"
        " AND shard = %s AND at_us <= %s ORDER BY at_us, id LIMIT %s FOR UPDATE SKIP LOCKED))",
        (stream, shard, until_us, EXPIRED_MAX),
    )
    return deleted == EXPIRED_MAX
