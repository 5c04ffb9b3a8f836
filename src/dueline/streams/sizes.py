"""Sizes of streams, for those that are kept by size.

A record of each shard has the bytes of its events by minutes, and how far they were counted. Each
event is read once for it. Events that are stored late, below that place, are not counted.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

from dueline.core.clock import SECOND_US
from dueline.core.codec import encode
from dueline.core.engine import Engine
from dueline.core.pagination import rows_in
from dueline.core.readable_records import value_at
from dueline.core.store import Put
from dueline.log.checkpoint import Place

SLICE_US: Final = 60 * SECOND_US
"""Time range of a count."""

SLICES_MAX: Final = 400
"""Maximum number of counts of a shard; then two by two are joined."""

ROWS_A_STEP: Final = 20_000
"""Maximum number of events of a shard that one step counts."""

_PAGE: Final = 1000


@dataclass(frozen=True, slots=True)
class _Counted:
    """Events up to `at_us` and `id` are counted. slices: end of the time range, and bytes."""

    at_us: int = 0
    id: str = ""
    slices: tuple[tuple[int, int], ...] = ()


def partition_of(stream: str) -> str:
    """Return the partition with the sizes of a stream, a key for each shard."""
    return f"stream-sizes/{stream}"


def surplus_until_us(engine: Engine, stream: str, shards: Sequence[int], keep_bytes: int) -> int:
    """Return the time before which events go, so that at most `keep_bytes` are left; 0: none do.

    The present minute stays.
    """
    slices = sorted(count for shard in shards for count in _counted(engine, stream, shard))
    left, until_us = sum(size for _, size in slices), 0
    for end_us, size in slices:
        if left <= keep_bytes or end_us > engine.time.earliest_us():
            break
        left, until_us = left - size, end_us
    return until_us


def _counted(engine: Engine, stream: str, shard: int) -> Sequence[tuple[int, int]]:
    """Count the events that were stored since the last step; return the sizes of a shard."""
    store, partition = engine.store, partition_of(stream)
    stored, version = value_at(store, partition, str(shard), _Counted)
    before = stored or _Counted()
    after: Place | None = (before.at_us, bytes.fromhex(before.id)) if stored else None
    rows = list(islice(rows_in(store, stream, shard, after=after, page_size=_PAGE), ROWS_A_STEP))
    oldest = store.tail(stream, shard, after=None, limit=1).rows
    first_us = oldest[0].at_us if oldest else 0
    sizes = Counter(dict(before.slices))
    for row in rows:
        sizes[(row.at_us // SLICE_US + 1) * SLICE_US] += len(row.body) + len(row.id)
    slices = tuple(sorted(count for count in sizes.items() if oldest and count[0] > first_us))
    while len(slices) > SLICES_MAX:
        slices = tuple(
            (pair[-1][0], sum(size for _, size in pair))
            for pair in (slices[place : place + 2] for place in range(0, len(slices), 2))
        )
    at_us, row_id = (rows[-1].at_us, rows[-1].id.hex()) if rows else (before.at_us, before.id)
    after_all = _Counted(at_us, row_id, slices)
    if after_all != before:  # where another process has counted, its record stays
        put = Put(str(shard), engine.ids.token(), encode(after_all), expect=version)
        store.commit(partition, (put,))
    return slices
