"""Late rows and marks, whatever the order of the steps."""

from collections.abc import Callable, Mapping, Sequence

import pytest

from dueline.core.store import Row, Store
from dueline.core.watermark import StreamShard, StreamWatermarks
from dueline.store_tests.calls import NOW_US, row_of
from dueline.store_tests.streams import ids_in
from tests.harness.clocks import HandClock
from tests.harness.cluster import Cluster, Node
from tests.harness.interleaving import Turns, every_order
from tests.harness.stepped_store import SteppedMemoryStore

Patch = pytest.MonkeyPatch


Place = tuple[int, bytes] | None


Reading = Callable[[Store, int, Place], tuple[list[Row], int]]


def read_past(store: Store, at_us: int, after: Place) -> tuple[list[Row], int]:
    """Close a shard, then read what is closed: the order that readers keep."""
    mark = store.close_until("log", 0, at_us=at_us)
    return list(store.tail("log", 0, after=after, limit=100, until_us=mark).rows), mark


def read_before_closing(store: Store, at_us: int, after: Place) -> tuple[list[Row], int]:
    """Read what is about to be closed, then close it: the mark is raised too late."""
    rows = list(store.tail("log", 0, after=after, limit=100, until_us=at_us).rows)
    return rows, store.close_until("log", 0, at_us=at_us)


def append_against_reader(reading: Reading = read_past) -> int:
    """Let a producer append one row while a reader passes it; then the reader goes on."""

    def lead(turns: Turns) -> None:
        clock, cluster = HandClock(), Cluster()
        one, two = (SteppedMemoryStore(clock, cluster=cluster, step=turns.step) for _ in range(2))
        read: list[Row] = []
        places: list[int | None] = []
        passed: list[int] = []

        def follow(until_us: int) -> None:
            after = (passed[-1], b"\xff" * 16) if passed else None
            rows, mark = reading(two, until_us, after)
            read.extend(rows)
            passed.append(mark)

        def follow_twice() -> None:
            follow(NOW_US + 5)
            follow(NOW_US + 7)

        turns.run([lambda: places.extend(one.append([row_of(1)])), follow_twice])
        assert None not in places
        follow(NOW_US + 100)
        assert ids_in(read) == [row_of(1).id]
        assert places == [read[-1].at_us]

    return every_order(lead)


def two_readers() -> int:
    """Let two readers raise the mark, one of them less far."""

    def lead(turns: Turns) -> None:
        clock, cluster = HandClock(), Cluster()
        one, two = (SteppedMemoryStore(clock, cluster=cluster, step=turns.step) for _ in range(2))
        marks: list[int] = []

        def close(store: Store, at_us: int) -> None:
            marks.append(store.close_until("log", 0, at_us=at_us))

        turns.run([lambda: close(one, NOW_US), lambda: close(two, NOW_US + 9)])
        assert one.close_until("log", 0, at_us=0) == NOW_US + 9 >= max(marks)

    return every_order(lead)


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
