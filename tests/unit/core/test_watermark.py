"""Late rows and marks, whatever the order of the steps."""

from collections.abc import Callable, Sequence

import pytest

from dueline.core.errors import StoreUnavailable
from dueline.core.watermark import ROUNDS_MAX, StreamShard, StreamWatermarks
from dueline.store_tests.calls import NOW_US, row_of, stream_of
from tests.harness.cases.core_watermark import (
    Patch,
    append_against_reader,
    look_before_the_append,
    mark_that_goes_back,
    no_look_after_append,
    read_before_closing,
    two_readers,
)
from tests.harness.clocks import HandClock
from tests.harness.cluster import Cluster, Node
from tests.harness.stepped_store import SteppedMemoryStore

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


@pytest.mark.parametrize(
    ("mutant", "act"),
    [
        (no_look_after_append, append_against_reader),
        (look_before_the_append, append_against_reader),
        (mark_that_goes_back, two_readers),
    ],
)
def test_a_rule_that_is_left_out_is_noticed(
    mutant: Callable[[Patch], None], act: Callable[[], int], monkeypatch: Patch
) -> None:
    mutant(monkeypatch)
    with pytest.raises(AssertionError):
        act()


def test_a_reader_that_raises_the_mark_too_late_is_noticed() -> None:
    with pytest.raises(AssertionError):
        append_against_reader(read_before_closing)


def test_a_damaged_mark_makes_rows_of_its_shard_unknown_and_no_others() -> None:
    store = SteppedMemoryStore(HandClock())
    store.close_until("log", 0, at_us=2**63 - 1)
    other = row_of(2)._replace(shard=1)
    for _ in range(2):
        assert store.append([row_of(1), other]) == [None, other.at_us]
