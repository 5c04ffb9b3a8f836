"""Late rows and marks, whatever the order of the steps."""

from collections.abc import Callable, Sequence

import pytest

from dueline.core.errors import StoreUnavailable
from dueline.core.store import Row, Store
from dueline.core.watermark import ROUNDS_MAX, StreamShard, StreamWatermarks
from dueline.store_tests.calls import NOW_US, row_of, stream_of
from dueline.store_tests.streams import ids_in
from tests.harness.clocks import HandClock
from tests.harness.cluster import Cluster, Node
from tests.harness.interleaving import Turns, every_order
from tests.harness.stepped_store import SteppedMemoryStore

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


SHELF = StreamShard("log", 0)


def test_a_producer_and_a_reader_in_any_order() -> None:
    # T12
    assert append_against_reader() > 20


def test_two_readers_raise_the_mark_in_any_order() -> None:
    assert two_readers() > 3


# --- answers that do not come ----------------------------------------------------------------


def failing_at(name: str, number: int) -> SteppedMemoryStore:
    """Make a client whose n-th step of a name fails, before it happens."""
    left = {name: number}

    def step(step_name: str) -> None:
        if step_name in left:
            left[step_name] -= 1
            if not left[step_name]:
                raise StoreUnavailable

    return SteppedMemoryStore(HandClock(), step=step)


def test_a_row_that_cannot_be_looked_at_is_unknown() -> None:
    store = failing_at("mark_of", 1)
    assert list(store.append([row_of(1)])) == [None]
    assert stream_of(store) == [row_of(1)]
    assert list(store.append([row_of(1)])) == [NOW_US]


def test_a_row_that_cannot_be_appended_again_is_unknown() -> None:
    cluster = Cluster()
    other = SteppedMemoryStore(HandClock(), cluster=cluster)
    other.close_until("log", 0, at_us=NOW_US)
    store = failing_at("append", 2)
    store._node.cluster = cluster
    assert list(store.append([row_of(1)])) == [None]


def test_a_first_write_that_fails_wrote_nothing() -> None:
    store = failing_at("append", 1)
    with pytest.raises(StoreUnavailable):
        store.append([row_of(1)])
    assert stream_of(store) == []


def test_a_mark_that_runs_ahead_all_the_time_makes_a_row_unknown() -> None:
    cluster = Cluster()

    class Running(Node):
        def marks_of(self, shards: Sequence[StreamShard]) -> Sequence[int]:
            self.cluster.closed[SHELF] = self.cluster.closed.get(SHELF, NOW_US) + 10
            return super().marks_of(shards)

    frontier = StreamWatermarks(Running(cluster, lambda _name: None))
    assert frontier.append([row_of(1)]) == [None]
    assert len(cluster.streams[SHELF]) == ROUNDS_MAX


def test_what_is_known_of_marks_saves_a_second_write() -> None:
    store = SteppedMemoryStore(HandClock())
    store.close_until("log", 0, at_us=NOW_US)
    assert list(store.append([row_of(1)])) == [NOW_US + 1]
    assert stream_of(store) == [row_of(1, at_us=NOW_US + 1)]


# --- each rule is needed ---------------------------------------------------------------------


def test_a_reader_that_raises_the_mark_too_late_is_noticed() -> None:
    with pytest.raises(AssertionError):
        append_against_reader(read_before_closing)


def test_a_damaged_mark_makes_rows_of_its_shard_unknown_and_no_others() -> None:
    store = SteppedMemoryStore(HandClock())
    store.close_until("log", 0, at_us=2**63 - 1)
    other = row_of(2)._replace(shard=1)
    for _ in range(2):
        assert store.append([row_of(1), other]) == [None, other.at_us]
