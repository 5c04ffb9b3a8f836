"""Transactions on PostgreSQL that stay open, and sweeps beside each other."""

from collections.abc import Iterator

import pytest

from dueline.api.connect import open_store
from dueline.core.lane import Marks, bucket_of
from dueline.core.store import Drop, Store, Transactional
from dueline.store_tests.calls import (
    NOW_US,
    WIDTH_US,
    claim,
    lane_of,
    new_job,
    pointers_in,
    row_of,
)
from tests.harness.postgres import expect_server

expect_server()

from dueline.stores.postgres import lanes  # noqa: E402
from dueline.stores.postgres.store import PostgresStore  # noqa: E402

pytestmark = pytest.mark.postgres


@pytest.fixture
def store(url: str) -> Iterator[PostgresStore]:
    store = open_store(url)
    assert isinstance(store, PostgresStore)
    yield store
    store.close()


@pytest.mark.parametrize("is_listed", [False, True])
def test_a_job_of_a_late_commit_is_found(
    store: PostgresStore, url: str, *, is_listed: bool
) -> None:
    """The sweep closes nothing meanwhile, and nobody waits for the transaction."""
    later_us = NOW_US + 5 * WIDTH_US
    assert isinstance(store, Transactional)
    other = open_store(url)
    if is_listed:
        other.add([new_job(3)])
        assert other.settle([Drop(new_job(3))]) == [True]
    with store.transaction() as inside:
        inside.store.add([new_job(1)])
        other.add([new_job(2)])
        marks = other.sweep("laws", 0, now_us=later_us, width_us=WIDTH_US)
        assert marks.closed < lane_of().bucket
        assert [job.id for job in claim(other, lane_of()).jobs] == [new_job(2).id]
    assert [job.id for job in claim(other, lane_of(), token=2).jobs] == [new_job(1).id]
    assert other.sweep("laws", 0, now_us=later_us, width_us=WIDTH_US).closed >= lane_of().bucket
    assert [pointer.lane for pointer in pointers_in(other)] == [lane_of()]
    other.close()


def test_a_sweep_sets_no_mark_back_that_another_has_raised(
    store: PostgresStore, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rule S4: marks only grow. The second sweep begins when the first has read the marks."""
    other = open_store(url)
    marks: list[Marks] = []

    def sweep(by: Store, *, buckets: int) -> None:
        now_us = NOW_US + buckets * WIDTH_US
        marks.append(by.sweep("laws", 0, now_us=now_us, width_us=WIDTH_US))

    def sweep_beside(at_us: int, width_us: int) -> int:
        patch.undo()
        sweep(other, buckets=5)
        return bucket_of(at_us, width_us)

    sweep(store, buckets=0)  # creates the marks
    with monkeypatch.context() as patch:
        patch.setattr(lanes, "bucket_of", sweep_beside)
        sweep(store, buckets=2)
    assert len(marks) == 3
    stored = other.lanes("laws", 0, until_bucket=0, after=None, limit=1).marks
    assert stored.swept == max(each.swept for each in marks)
    assert stored.closed == max(each.closed for each in marks)
    other.close()


def test_a_watermark_stays_below_an_append_that_is_not_committed(
    store: PostgresStore, url: str
) -> None:
    other = open_store(url)
    with store.transaction() as inside:
        inside.store.append([row_of(1)])
        assert other.append([row_of(2)]) == [NOW_US]
        assert NOW_US - 1000 <= other.close_until("log", 0, at_us=NOW_US) < NOW_US
    assert other.close_until("log", 0, at_us=NOW_US) == NOW_US
    rows = other.tail("log", 0, after=None, limit=9, until_us=NOW_US).rows
    assert list(rows) == [row_of(1), row_of(2)]
    other.close()
