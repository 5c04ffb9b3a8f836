"""Claims on PostgreSQL: what the laws do not choose on purpose."""

from collections.abc import Iterator

import pytest

from dueline.core.store import Store, Want
from dueline.store_tests.helpers import (
    LEASE_US,
    NOW_US,
    lane_of,
    new_job,
    new_jobs,
    row_of,
    token_of,
)
from tests.harness.postgres import schemas

pytestmark = pytest.mark.postgres


@pytest.fixture
def store() -> Iterator[Store]:
    with schemas() as made:
        store = made.open(made.fresh())
        yield store
        store.close()


def test_what_one_lane_leaves_of_the_limit_another_may_take(store: Store) -> None:
    one, two = lane_of(priority=1), lane_of(priority=2)
    store.add([new_job(1, lane=one), *new_jobs(2, first=10, lane=two)])
    claimed = store.claim(
        [Want(one, 4), Want(two, 2)],
        limit=5,
        now_us=NOW_US,
        lease_us=LEASE_US,
        worker="w",
        token=token_of(1),
    )
    assert len(claimed.jobs) == 3


def test_of_two_rows_with_one_id_in_a_call_the_first_stays(store: Store) -> None:
    first, second = row_of(1), row_of(1)._replace(body=b"a body that sorts first")
    assert list(store.append([first, second])) == [NOW_US, NOW_US]
    assert list(store.tail("log", 0, after=None, limit=9).rows) == [first]
