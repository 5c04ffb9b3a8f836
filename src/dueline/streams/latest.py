"""The newest events of a stream.

Stores read shards in the order of time, so a shard is read backwards in windows, each eight times
as long as the one before, or shorter where it has many events.
"""

import heapq
from collections.abc import Sequence
from operator import attrgetter
from typing import Final

from dueline.core.clock import SECOND_US
from dueline.core.pagination import at_once
from dueline.core.store import Row, Store
from dueline.core.watermark import SEALED_US
from dueline.streams.event import Events

_WINDOW_US: Final = 60 * SECOND_US
_GROWTH: Final = 8
_PAGE: Final = 500
_LAST_ID: Final = b"\xff" * 16
_place_of = attrgetter("at_us", "id")


def latest_events(
    store: Store, stream: str, shards: Sequence[int], count: int, now_us: int
) -> Events:
    """Return the newest events of a stream, the newest first."""
    each = at_once(store, lambda shard: _latest_of(store, stream, shard, count, now_us), shards)
    rows = heapq.nlargest(count, (row for newest in each for row in newest), key=_place_of)
    return Events(list({row.id: row for row in rows}.values()))


def _latest_of(store: Store, stream: str, shard: int, count: int, now_us: int) -> Sequence[Row]:
    """Return the newest rows of a shard; `count` of them, or about that many."""
    rows: list[Row] = []
    end_us, until_us, width_us = now_us, SEALED_US, _WINDOW_US
    while len(rows) < count and end_us >= 0:
        since_us = max(-1, end_us - width_us)
        page = store.tail(stream, shard, after=(since_us, _LAST_ID), limit=_PAGE, until_us=until_us)
        if len(page.rows) == _PAGE and width_us > 1:
            width_us = max(1, width_us // _GROWTH)
            continue
        rows = [*page.rows, *rows]
        end_us = until_us = since_us
        width_us *= _GROWTH
    return rows
