"""The prototype of stretches: the laws of claims and outcomes, and the proposed rules."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.stretches import table
from benchmarks.stretches.store import StretchStore
from dueline.core.clock import Clock, SystemClock
from dueline.core.job import UNCLAIMED_TOKEN, State
from dueline.core.store import Drop, Extend, Lease, Store, Want
from dueline.store_tests.calls import (
    LEASE_US,
    NOW_US,
    claim,
    id_of,
    ids_of,
    lane_of,
    move,
    new_job,
    new_jobs,
    token_of,
)
from dueline.store_tests.exclusion import ExclusionLaws
from dueline.store_tests.fencing import FencingLaws
from dueline.store_tests.groups import GroupLaws, TogetherLaws
from dueline.store_tests.inserts import InsertLaws
from dueline.store_tests.lane_list import LaneListLaws
from dueline.store_tests.laws import StoreFactory
from dueline.store_tests.order import OrderLaws
from dueline.store_tests.prefetch import PrefetchLaws
from dueline.store_tests.recovery import RecoveryLaws

pytestmark = pytest.mark.sqlite
LANE = lane_of()
LATER_US = NOW_US + 1000


class FileFactory:
    """Opens queue files with the prototype; every claim of new rows is a stretch."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._made = 0

    def fresh(self) -> str:
        self._made += 1
        return str(self._folder / f"{self._made}.db")

    def open(self, url: str, *, clock: Clock | None = None) -> Store:
        clock = clock or SystemClock()
        return StretchStore(Path(url), clock=clock, synchronous="NORMAL", rows_min=1)


class TestStretches(
    InsertLaws,
    ExclusionLaws,
    FencingLaws,
    GroupLaws,
    LaneListLaws,
    OrderLaws,
    PrefetchLaws,
    RecoveryLaws,
    TogetherLaws,
):
    @pytest.fixture
    def factory(self, tmp_path: Path) -> StoreFactory:
        return FileFactory(tmp_path)

    @pytest.fixture
    def store(self, factory: StoreFactory) -> Iterator[Store]:
        store = factory.open(factory.fresh())
        yield store
        store.close()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StretchStore]:
    store = StretchStore(tmp_path / "q.db", clock=SystemClock(), synchronous="NORMAL", rows_min=1)
    yield store
    store.close()


def rows(store: StretchStore) -> list[tuple[bytes, bytes]]:
    """Return the id and token of each row, as it is stored."""
    return store._connection.read(
        lambda database: list(database.execute("SELECT id, token FROM jobs ORDER BY id"))
    )


def live(store: StretchStore) -> int:
    """Count the stretches."""
    return len(store._connection.read(table.all_of))


def test_a_claim_writes_no_row_and_is_seen(store: StretchStore) -> None:
    # rules G1 and G2
    store.add(new_jobs(3))
    claimed = claim(store, LANE).jobs
    assert len(claimed) == 3
    assert rows(store) == [(id_of(number), UNCLAIMED_TOKEN) for number in (1, 2, 3)]
    assert store.find(ids_of(claimed)) == claimed
    assert store.scan(LANE, after=None, until_us=None, limit=9).jobs == claimed
    assert live(store) == 0  # a listing writes it out


def test_claimed_rows_are_not_claimed_again_and_the_next_ones_are(store: StretchStore) -> None:
    store.add(new_jobs(5))
    first = claim(store, LANE, most=2, token=1)
    second = claim(store, LANE, token=2)
    assert ids_of(second.jobs) == [id_of(3), id_of(4), id_of(5)]
    assert first.next_at_us == {LANE: NOW_US}
    assert second.next_at_us == {LANE: NOW_US + LEASE_US}
    assert claim(store, LANE, token=3).jobs == []


def test_the_record_goes_with_the_last_job(store: StretchStore) -> None:
    # rules G3 and G5
    store.add(new_jobs(3))
    first, second, third = claim(store, LANE).jobs
    assert store.settle([Drop(second)]) == [True]
    assert live(store) == 1
    assert store.settle([Drop(first), Drop(third), Drop(second)]) == [True, True, False]
    assert live(store) == 0


@pytest.mark.parametrize("what", ["extend", "start", "retry"])
def test_all_but_an_end_is_written_out_first(store: StretchStore, what: str) -> None:
    # rule G4
    store.add(new_jobs(2))
    first, second = claim(store, LANE).jobs
    verdict = move(first, LATER_US)
    if what != "retry":
        verdict = Extend(first, NOW_US + 2 * LEASE_US, started=what == "start")  # type: ignore[assignment]
    assert store.settle([verdict]) == [True]
    assert live(store) == 0
    rows = store.find([first.id, second.id])
    assert rows[1] == second
    assert rows[0] is not None
    assert rows[0].fence == 1
    assert store.settle([Drop(second)]) == [True]


def test_an_expired_stretch_is_claimed_as_what_died(store: StretchStore) -> None:
    # rules G1 and G5
    store.add(new_jobs(2))
    first = claim(store, LANE, token=1, worker="a").jobs
    second = claim(store, LANE, token=2, now_us=NOW_US + LEASE_US, most=1)
    assert second.died == {id_of(1): first[0]}
    assert [job.fence for job in second.jobs] == [2]
    assert store.settle([Drop(job) for job in first]) == [False, True]  # rule G3
    assert store.settle([Drop(second.jobs[0])]) == [True]


@pytest.mark.parametrize("at_us", [NOW_US, NOW_US - 5])
def test_a_row_inserted_into_a_range_is_claimed_by_others(store: StretchStore, at_us: int) -> None:
    # rule G7
    store.add([new_job(1), new_job(9)])
    held = claim(store, LANE, token=1).jobs
    store.add([new_job(5, at_us=at_us, lane=LANE)])
    assert ids_of(claim(store, LANE, token=2).jobs) == [id_of(5)]
    assert store.settle([Drop(job) for job in held]) == [True, True]


def test_a_row_moved_before_a_stretch_is_claimed_by_others(store: StretchStore) -> None:
    # rule G7
    store.add(new_jobs(4))
    first, second = claim(store, LANE, most=2, token=1).jobs
    claim(store, LANE, token=2)
    assert store.settle([move(first, NOW_US)]) == [True]
    assert ids_of(claim(store, LANE, token=3).jobs) == [first.id]
    assert store.settle([Drop(second)]) == [True]


def test_rows_beside_one_that_was_claimed_are_claimed_by_row(store: StretchStore) -> None:
    # rules G2 and G7
    store.add(new_jobs(3))
    (job,) = claim(store, LANE, most=1).jobs
    assert store.settle([move(job, NOW_US)]) == [True]
    assert len(claim(store, LANE, token=2).jobs) == 3
    assert live(store) == 0
    assert {token for _, token in rows(store)} == {token_of(2)}


def test_a_change_of_a_row_that_was_read_as_waiting_is_rejected(store: StretchStore) -> None:
    # rule G6
    store.add(new_jobs(1))
    (waiting,) = store.find([id_of(1)])
    assert waiting is not None
    (held,) = claim(store, LANE).jobs
    assert store.settle([Drop(waiting), move(waiting, LATER_US)]) == [False, False]
    (row,) = store.find([id_of(1)])
    assert row == held._replace(state=State.CLAIMED)


def test_a_prefetch_by_an_earlier_clock_claims_no_row_of_a_stretch(store: StretchStore) -> None:
    # rule G6
    store.add(new_jobs(2))
    held = claim(store, LANE).jobs
    early = store.prefetch(
        [Want(LANE, 9)],
        limit=9,
        until_us=NOW_US + 1,
        lease=Lease(NOW_US - 1, LEASE_US, "b", token_of(2)),
    )
    assert early.jobs == []
    assert store.find(ids_of(held)) == held
