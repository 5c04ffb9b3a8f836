"""Rules of the watermarks of streams, broken."""

from collections.abc import Mapping, Sequence

import pytest

from dueline.core.store import Row
from dueline.core.watermark import StreamShard, StreamWatermarks
from tests.harness.cluster import Node

Patch = pytest.MonkeyPatch


def no_look_after_append(patch: Patch) -> None:
    def look(_watermarks: StreamWatermarks, rows: Sequence[Row]) -> Mapping[StreamShard, int]:
        return dict.fromkeys({StreamShard(row.stream, row.shard) for row in rows}, -1)

    patch.setattr(StreamWatermarks, "_look", look)


def look_before_the_append(patch: Patch) -> None:
    insert = StreamWatermarks._insert
    look = StreamWatermarks._look
    seen: dict[StreamShard, int] = {}

    def look_first(frontier: StreamWatermarks, rows: dict[int, Row], *, is_first: bool) -> set[int]:
        seen.update(look(frontier, rows.values()) or {})
        return insert(frontier, rows, is_first=is_first)

    patch.setattr(StreamWatermarks, "_insert", look_first)
    patch.setattr(
        StreamWatermarks, "_look", lambda _watermarks, rows: dict(seen) if list(rows) else {}
    )


def mark_that_goes_back(patch: Patch) -> None:
    def write(node: Node, shard: StreamShard, *, old: int, new: int) -> bool:
        node.step("raise_mark")
        assert new > old
        node.cluster.closed[shard] = new
        return True

    patch.setattr(Node, "raise_mark", write)
