"""Watermarks of streams in tables of schema version 1.

An append holds the watermark of its shard FOR SHARE until it commits. A process that raises the
watermark takes it FOR UPDATE, and waits for a short time. So transactions that always overlap keep
it where it is; `dueline migrate` ends that.
"""

from collections.abc import Collection
from collections.abc import Set as AbstractSet

from dueline.core.errors import StoreUnavailable
from dueline.stores.postgres.arrays import columns_of
from dueline.stores.postgres.database import Database
from dueline.stores.postgres.lanes import LOCK_WAIT

_HOLD = (
    "SELECT m.stream, m.shard, m.closed_us FROM unnest(%s::text[], %s::bigint[])"
    " AS w (stream, shard) JOIN @stream_marks m ON m.stream = w.stream AND m.shard = w.shard"
    " FOR SHARE OF m"
)
_MAKE = (
    "INSERT INTO @stream_marks (stream, shard) SELECT * FROM unnest(%s::text[], %s::bigint[])"
    " ON CONFLICT DO NOTHING"
)


def hold(database: Database, shards: AbstractSet[tuple[str, int]]) -> dict[tuple[str, int], int]:
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


def close_until(database: Database, stream: str, shard: int, at_us: int) -> int:
    """Raise a shard's watermark.

    Raises:
      LockNotAvailable: An append was not committed in time.
    """
    database.fetch("SELECT set_config('lock_timeout', %s, true)", (LOCK_WAIT,))
    database.execute(_MAKE, ([stream], [shard]))
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
