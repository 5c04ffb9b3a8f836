"""Which workers are alive."""

from dataclasses import replace

from dueline.coordination.worker_registry import Presence, announce, leave, present
from dueline.core.clock import SECOND_US
from dueline.core.store import Store
from dueline.core.version import VERSION
from tests.harness.clocks import NOW_US, HandClock

BEAT_US = 10 * SECOND_US


def presence(worker: str = "here:1:abcd", *, beat_us: int = NOW_US, held: int = 0) -> Presence:
    """Make what a worker says of itself."""
    return Presence(worker, ("default", "mail"), ("a.b",), 16, held, NOW_US - 5, beat_us, -3)


def beat(store: Store, said: Presence) -> None:
    """Announce a worker."""
    announce(store, said, version=b"v" * 16, beat_every_us=BEAT_US)


def test_a_worker_that_beats_is_present_with_all_it_says(store: Store) -> None:
    # R7
    beat(store, presence(held=3))
    assert list(present(store)) == [replace(presence(held=3), version=VERSION)]


def test_the_last_beat_counts(store: Store) -> None:
    beat(store, presence(held=3))
    beat(store, presence(held=5))
    assert [presence.held for presence in present(store)] == [5]


def test_a_worker_is_gone_after_three_missed_beats(store: Store, clock: HandClock) -> None:
    # R7
    beat(store, presence())
    clock.advance(us=3 * BEAT_US - 1)
    assert len(present(store)) == 1
    clock.advance(us=1)
    assert list(present(store)) == []


def test_a_beat_renews_it(store: Store, clock: HandClock) -> None:
    for _ in range(5):
        beat(store, presence(beat_us=clock.wall_us()))
        clock.advance(us=2 * BEAT_US)
        assert len(present(store)) == 1


def test_a_worker_that_leaves_is_gone_at_once_and_only_it(store: Store) -> None:
    beat(store, presence("a"))
    beat(store, presence("b"))
    leave(store, "a")
    leave(store, "never there")
    assert [presence.worker for presence in present(store)] == ["b"]


def test_any_number_of_workers_is_read_in_the_order_of_their_ids(store: Store) -> None:
    names = [f"host:{number:05}:x" for number in range(1005)]
    for name in reversed(names):
        beat(store, presence(name))
    assert [presence.worker for presence in present(store)] == names
