"""The lane list in PostgreSQL's tables.

A transaction that inserts or moves jobs holds the marks of their shards FOR SHARE until it
commits, and their lanes FOR KEY SHARE. A sweep takes the marks FOR UPDATE, so it neither closes a
bucket nor unlists a lane under an insert that is not committed (rule E6). All who change lanes hold
their marks.
"""

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Final

from dueline.core.errors import StoreUnavailable
from dueline.core.lane import Lane, Marks, Pointer, bucket_of
from dueline.core.store import NO_VERSION, SETTINGS_PARTITION, LanePage
from dueline.stores.postgres.arrays import columns_of
from dueline.stores.postgres.database import GREATEST, LEAST, Database

LOCK_WAIT: Final = "50ms"
"""Maximum time that a sweep waits for inserts that are not committed; NOWAIT would starve it."""

_ROUNDS: Final = 5

_WANTED: Final = (
    "unnest(%s::text[], %s::bigint[], %s::bigint[], %s::bigint[], %s::text[], %s::bigint[])"
    " WITH ORDINALITY AS w (queue, shard, bucket, priority, tenant, listing, place)"
)
_WANTED_ONE: Final = (
    "(SELECT %s::text AS queue, %s::bigint AS shard, %s::bigint AS bucket, %s::bigint AS priority,"
    " %s::text AS tenant, %s::bigint AS listing, 1::bigint AS place) AS w"
)
_SAME_LANE: Final = (
    "l.queue = w.queue AND l.shard = w.shard AND l.bucket = w.bucket AND l.priority = w.priority"
    " AND l.tenant = w.tenant"
)
_HOLD: Final = (
    f"SELECT w.place, l.id FROM {{}} JOIN @marks m ON m.queue = w.queue AND m.shard = w.shard"
    f" JOIN @lanes l ON {_SAME_LANE} WHERE l.listing > m.closed"
    " AND l.listing <= greatest(w.listing, m.closed + 1) FOR SHARE OF m FOR KEY SHARE OF l"
)
HOLD: Final = _HOLD.format(_WANTED)
HOLD_ONE: Final = _HOLD.format(_WANTED_ONE)
_MAKE_MARKS: Final = (
    "INSERT INTO @marks (queue, shard) SELECT * FROM unnest(%s::text[], %s::bigint[])"
    " ON CONFLICT DO NOTHING"
)
_HOLD_MARKS: Final = (
    "SELECT closed FROM unnest(%s::text[], %s::bigint[]) AS w (queue, shard)"
    " JOIN @marks m ON m.queue = w.queue AND m.shard = w.shard FOR SHARE OF m"
)
_FIRST_OPEN: Final = (
    "(SELECT closed + 1 FROM @marks m WHERE m.queue = l.queue AND m.shard = l.shard)"
)
_LIST: Final = (
    "INSERT INTO @lanes AS l (queue, shard, bucket, priority, tenant, listing)"
    " SELECT w.queue, w.shard, bucket, priority, tenant, greatest(listing, m.closed + 1)"
    f" FROM {_WANTED} JOIN @marks m ON m.queue = w.queue AND m.shard = w.shard ORDER BY w.place"
    " ON CONFLICT (queue, shard, bucket, priority, tenant) DO UPDATE"
    f" SET listing = greatest({_FIRST_OPEN}, least(l.listing, excluded.listing))"
    " RETURNING l.queue, l.shard, l.bucket, l.priority, l.tenant, l.id"
)

NUMBER: Final = (
    "(SELECT id FROM @lanes WHERE queue = %s AND shard = %s AND bucket = %s AND priority = %s"
    " AND tenant = %s)"
)
"""The number of a lane; NULL if it is not listed and has no rows."""

HEAD: Final = (
    "(SELECT min(at_us) FROM @jobs WHERE lane = {lane} AND pos_us >= {since} AND pos_us <="
    " coalesce((SELECT pos_us FROM @jobs WHERE lane = {lane} AND pos_us >= {since}"
    f" AND at_us = pos_us ORDER BY pos_us, id LIMIT 1), {GREATEST}))"
)
"""The lowest `at_us` in a lane from a position on. No row is due before its position, so no row
behind the first waiting one has a lower time."""


def head_in(lane: str, since: str = str(LEAST)) -> str:
    """Return the expression for the lowest `at_us` of a lane."""
    return HEAD.format(lane=lane, since=since)


def hold(database: Database, wanted: Mapping[Lane, int]) -> dict[Lane, int]:
    """List lanes under open buckets and keep them listed until the commit.

    Args:
      database: The connection, in a transaction.
      wanted: For each lane the bucket under which it is listed at the latest, or under the first
        open one.

    Returns:
      The number of each lane.
    """
    held: dict[Lane, int] = {}
    missing = sorted(wanted)
    for _ in range(_ROUNDS):
        arrays = arrays_of(missing, wanted)
        held |= {missing[place - 1]: number for place, number in database.fetch(HOLD, arrays)}
        missing = [lane for lane in missing if lane not in held]
        if not missing:
            return held
        if database.apart is None:
            return held | _list(database, missing, wanted)
        # A lane that is not committed would stop all other producers.
        listed: dict[Lane, int] = database.apart(partial(_list, lanes=missing, wanted=wanted))
        if database.has_snapshot():
            _hold_marks(database, missing)
            return held | listed
    raise StoreUnavailable(
        "The lane list changed during every attempt to list a lane.", hint="Repeat the call."
    )


def arrays_of(lanes: Sequence[Lane], wanted: Mapping[Lane, int]) -> list[list[object]]:
    """Return the values of HOLD; those of HOLD_ONE are a lane and its bucket."""
    return [*columns_of(lanes), [wanted[lane] for lane in lanes]]


def _hold_marks(database: Database, lanes: Sequence[Lane]) -> None:
    """Keep the marks of lanes that were listed since this transaction took its snapshot.

    It does not see these lanes. It sees their marks, and fails if these have changed: so the lanes
    are under open buckets, of which no sweep unlists one while the marks are held.

    Raises:
      StoreUnavailable: A shard was created since then.
    """
    shards = sorted({(lane.queue, lane.shard) for lane in lanes})
    if len(database.fetch(_HOLD_MARKS, columns_of(shards))) < len(shards):
        raise StoreUnavailable(
            f"A shard of {shards[0][0]} was created after the transaction took its snapshot.",
            hint="Roll the transaction back and repeat it.",
        )


def make_marks(database: Database, shards: Collection[tuple[str, int]]) -> None:
    """Create the marks of shards that have none."""
    database.execute(_MAKE_MARKS, columns_of(sorted(shards)))


def _list(database: Database, lanes: Sequence[Lane], wanted: Mapping[Lane, int]) -> dict[Lane, int]:
    """List lanes; a lane under a closed bucket moves to the first open one."""
    shards = sorted({(lane.queue, lane.shard) for lane in lanes})
    make_marks(database, shards)
    database.fetch(_HOLD_MARKS, columns_of(shards))
    rows = database.fetch(_LIST, arrays_of(lanes, wanted))
    return {Lane._make(row[:-1]): row[-1] for row in rows}


def marks_of(database: Database, queue: str, shard: int) -> Marks:
    """Return the marks of a (queue, shard); both -1 for none."""
    row = database.first(
        "SELECT swept, closed FROM @marks WHERE queue = %s AND shard = %s", (queue, shard)
    )
    return Marks(*row) if row else Marks(-1, -1)


def number_of(database: Database, lane: Lane) -> int | None:
    """Return the number of a lane; None if it is not listed, and has no rows."""
    row = database.first(f"SELECT {NUMBER}", lane)
    return row[0] if row else None


def page(
    database: Database,
    queue: str,
    shard: int,
    *,
    until_bucket: int,
    after: Pointer | None,
    limit: int,
    without_head: Sequence[int],
) -> LanePage:
    """Read a page of the lane list; the marks are read before it.

    `without_head`: lanes whose start is full of dead rows, so that reading their heads costs much.
    """
    row = database.first(
        "SELECT swept, closed, version FROM (SELECT) AS one"
        " LEFT JOIN @marks ON queue = %s AND shard = %s"
        " LEFT JOIN @records ON partition = %s AND key = %s",
        (queue, shard, SETTINGS_PARTITION, queue),
    )
    assert row is not None
    swept, closed, version = row
    marks = Marks(-1 if swept is None else swept, -1 if closed is None else closed)
    past = (after.listing, *after.lane[2:]) if after else (LEAST, LEAST, LEAST, "")
    rows = database.fetch(
        "SELECT listing, bucket, priority, tenant, id = ANY(%s::bigint[]),"
        f" CASE WHEN id = ANY(%s::bigint[]) THEN NULL ELSE {head_in('l.id')} END FROM @lanes l"
        " WHERE queue = %s AND shard = %s AND listing <= %s"
        " AND (listing, bucket, priority, tenant) > (%s, %s, %s, %s)"
        " ORDER BY listing, bucket, priority, tenant LIMIT %s",
        (
            list(without_head), list(without_head), queue, shard,
            max(until_bucket, marks.closed + 1), *past, limit,
        ),
    )  # fmt: skip
    pointers = [Pointer(row[0], Lane(queue, shard, *row[1:4])) for row in rows]
    heads = {pointer.lane: row[5] for pointer, row in zip(pointers, rows, strict=True)
             if not row[4]}  # fmt: skip
    more = pointers[-1] if len(pointers) == limit else None
    return LanePage(pointers, marks, more, version or NO_VERSION, heads)


def sweep(database: Database, queue: str, shard: int, now_us: int, width_us: int) -> Marks:
    """Unlist empty lanes of closed buckets, list future ones later, raise both marks.

    Raises:
      LockNotAvailable: An insert was not committed in time.
    """
    place = (queue, shard)
    database.fetch("SELECT set_config('lock_timeout', %s, true)", (LOCK_WAIT,))
    database.execute(_MAKE_MARKS, ([queue], [shard]))
    row = database.first(
        "SELECT swept, closed FROM @marks WHERE queue = %s AND shard = %s FOR UPDATE", place
    )
    assert row is not None
    swept, closed = row
    past = database.fetch(
        f"SELECT id, {head_in('l.id')} FROM @lanes l"
        " WHERE queue = %s AND shard = %s AND listing <= %s",
        (*place, closed),
    )
    empty = [number for number, head_us in past if head_us is None]
    if empty:
        database.execute("DELETE FROM @lanes WHERE id = ANY(%s::bigint[])", (empty,))
    later = [(number, max(bucket_of(head_us, width_us), closed + 1)) for number, head_us in past
             if head_us is not None and head_us > now_us]  # fmt: skip
    if later:
        database.execute(
            "UPDATE @lanes SET listing = w.listing FROM unnest(%s::bigint[], %s::bigint[])"
            " AS w (id, listing) WHERE @lanes.id = w.id",
            columns_of(later),
        )
    least = database.first(
        "SELECT min(listing) FROM @lanes WHERE queue = %s AND shard = %s AND listing <= %s",
        (*place, closed),
    )
    kept = closed if least is None or least[0] is None else least[0] - 1
    marks = Marks(max(swept, kept), max(closed, bucket_of(now_us, width_us) - 1))
    if marks != (swept, closed):
        database.execute(
            "UPDATE @marks SET swept = %s, closed = %s WHERE queue = %s AND shard = %s",
            (*marks, *place),
        )
    return marks
