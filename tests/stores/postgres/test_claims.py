"""Claims on PostgreSQL: what the laws do not choose on purpose."""

from collections.abc import Callable, Iterator
from typing import cast

import psycopg
import pytest

from dueline.core.clock import SECOND_US
from dueline.core.job import Job
from dueline.core.store import Drop, Group, Lease, Store, Want
from dueline.store_tests.calls import (
    LEASE_US,
    NOW_US,
    claim,
    lane_of,
    move,
    new_job,
    new_jobs,
    row_of,
    token_of,
)
from dueline.stores.postgres import claims, cursors
from dueline.stores.postgres.connection import Connections
from dueline.stores.postgres.database import Database
from dueline.stores.postgres.store import PostgresStore
from tests.harness.clocks import HandClock
from tests.harness.postgres import schemas, server_url, statement

pytestmark = pytest.mark.postgres

POLL_US = 250_000


@pytest.fixture
def store() -> Iterator[Store]:
    with schemas() as made:
        store = made.open(made.fresh())
        yield store
        store.close()


def test_what_one_lane_leaves_of_the_limit_another_may_take(store: Store) -> None:
    first, second = lane_of(priority=1), lane_of(priority=2)
    store.add([new_job(1, lane=first), *new_jobs(2, first=10, lane=second)])
    claimed = store.claim(
        [Want(first, 4), Want(second, 2)], limit=5, lease=Lease(NOW_US, LEASE_US, "w", token_of(1))
    )
    assert len(claimed.jobs) == 3


def test_of_two_rows_with_one_id_in_a_call_the_first_stays(store: Store) -> None:
    first, second = row_of(1), row_of(1)._replace(body=b"a body that sorts first")
    assert list(store.append([first, second])) == [NOW_US, NOW_US]
    assert list(store.tail("log", 0, after=None, limit=9).rows) == [first]


def test_a_claim_of_many_returns_the_rows_as_they_are(store: Store) -> None:
    store.add(new_jobs(claims.MANY, lane=lane_of()))
    claimed = claim(store, lane_of(), limit=claims.MANY, now_us=NOW_US, token=1)
    assert claimed.jobs == store.find([job.id for job in claimed.jobs])
    assert [job.id for job in claimed.jobs] == [job.id for job in new_jobs(claims.MANY)]
    assert (claimed.died, claimed.next_at_us) == ({}, {lane_of(): NOW_US + LEASE_US})


def test_a_claim_of_many_takes_an_expired_claim_in_its_turn(store: Store) -> None:
    jobs = [new_job(number, at_us=NOW_US + number, lane=lane_of()) for number in range(claims.MANY)]
    store.add(jobs)
    (first,) = claim(store, lane_of(), limit=1, now_us=NOW_US + 9, token=1).jobs
    now_us = NOW_US + 9 + LEASE_US
    claimed = claim(store, lane_of(), limit=claims.MANY, now_us=now_us, token=2)
    assert [job.id for job in claimed.jobs] == [*(job.id for job in jobs[1:]), first.id]
    assert claimed.died == {first.id: first}
    assert claimed.jobs == store.find([job.id for job in claimed.jobs])


WAYS: dict[str, Callable[[Store, Job, Job], object]] = {
    "add": lambda store, new, _: store.add([new]),
    "group": lambda store, new, _: store.together([Group(jobs=[new])]),
    "move": lambda store, _, held: store.settle([move(held, NOW_US)]),
    "move in a group": lambda store, _, held: store.together([Group([move(held, NOW_US)])]),
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_a_row_that_a_process_puts_behind_its_cursor_is_claimed_next(
    store: Store, way: Callable[[Store, Job, Job], object]
) -> None:
    now_us = NOW_US + 1000
    store.add([new_job(number, at_us=NOW_US + number, lane=lane_of()) for number in range(1, 100)])
    for token in (1, 2):
        held = claim(store, lane_of(), limit=10, now_us=now_us, token=token).jobs
    new = new_job(500, at_us=NOW_US, lane=lane_of())
    way(store, new, held[0])
    (claimed,) = claim(store, lane_of(), limit=1, now_us=now_us, token=3).jobs
    assert claimed.id in {new.id, held[0].id}


def test_late_rows_that_a_claim_has_left_are_claimed_by_the_next_ones(store: Store) -> None:
    now_us = NOW_US + 1000
    store.add([new_job(number, at_us=NOW_US + number, lane=lane_of()) for number in range(1, 100)])
    for token in (1, 2):
        claim(store, lane_of(), limit=10, now_us=now_us, token=token)
    late = new_jobs(3, first=500, lane=lane_of())
    store.add(late)
    taken = [claim(store, lane_of(), limit=1, now_us=now_us, token=token) for token in (3, 4, 5)]
    assert [job.id for claimed in taken for job in claimed.jobs] == [job.id for job in late]


ROUNDS, JOBS = 20, 50


def entries_read(url: str) -> int:
    """Count the entries of the lanes' index that ended sessions have read, dead ones too."""
    ((count,),) = statement(
        url,
        "SELECT idx_tup_read FROM pg_stat_user_indexes"
        " WHERE schemaname = %s AND indexrelname = 'jobs_by_place'",
        (url.partition("schema=")[2],),
    )
    return int(count)


def test_dead_rows_that_an_open_transaction_keeps_are_not_read_again() -> None:
    """Each claim empties the lane; a job of a transaction that was open for long starts."""
    with schemas() as made, psycopg.connect(server_url()) as long:
        long.execute("SELECT pg_current_xact_id()")
        url = made.fresh()
        store, other = made.open(url), made.open(url)
        now_us = NOW_US
        for number in range(ROUNDS):
            now_us += 2 * SECOND_US
            first = number * JOBS + 1
            store.add([new_job(first + n, at_us=now_us, lane=lane_of()) for n in range(JOBS)])
            claimed = claim(store, lane_of(), limit=2 * JOBS, now_us=now_us, token=first)
            assert len(claimed.jobs) == JOBS
            assert all(store.settle([Drop(job) for job in claimed.jobs]))
        late = new_job(ROUNDS * JOBS + 1, at_us=NOW_US + 5 * SECOND_US, lane=lane_of())
        other.add([late])
        cast("PostgresStore", store)._claims.step_back([(late.lane, late.pos_us)])
        assert late.id in {job.id for job in claim(store, lane_of(), now_us=now_us, token=9).jobs}
        store.close()
        other.close()
        assert entries_read(url) < ROUNDS * ROUNDS * JOBS / 2


def test_a_job_is_started_that_is_committed_while_a_claim_moves_the_cursor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its notification comes in that time too: after the claim has read its lane."""
    with schemas() as made:
        url = made.fresh()
        store, other = made.open(url), made.open(url)
        store.add(new_jobs(4, lane=lane_of()))
        assert claim(store, lane_of(), limit=1, now_us=NOW_US, token=1).jobs
        late = new_job(9, at_us=NOW_US + 5 * SECOND_US, lane=lane_of())

        heads: Callable[..., object] = cursors._heads

        def heads_and_then(*bound: object, **named: object) -> object:
            rows = heads(*bound, **named)
            other.add([late])
            cast("PostgresStore", store)._claims.step_back([(late.lane, late.pos_us)])
            return rows

        now_us = NOW_US + 10 * SECOND_US
        with monkeypatch.context() as patch:
            patch.setattr(cursors, "_heads", heads_and_then)
            assert len(claim(store, lane_of(), limit=9, now_us=now_us, token=2).jobs) == 3
        claimed = claim(store, lane_of(), limit=9, now_us=now_us, token=3)
        assert [job.id for job in claimed.jobs] == [late.id]
        store.close()
        other.close()


@pytest.mark.parametrize("is_pooled", [True, False])
def test_behind_a_pooler_a_late_commit_is_found_by_the_next_poll(*, is_pooled: bool) -> None:
    """No notification comes; without a pooler it would, and the lane is read in its turn."""
    clock = HandClock()
    with schemas() as made:
        url = made.fresh()
        store, other = cast("PostgresStore", made.open(url, clock=clock)), made.open(url)
        now_us = NOW_US + 10 * SECOND_US
        store.add([new_job(1, at_us=now_us, lane=lane_of())])
        store._connections.is_pooled = is_pooled
        assert len(claim(store, lane_of(), now_us=now_us, token=1).jobs) == 1
        other.add([new_job(2, at_us=NOW_US + 5 * SECOND_US, lane=lane_of())])
        clock.advance(us=POLL_US)
        jobs = claim(store, lane_of(), now_us=now_us + POLL_US, token=2).jobs
        assert len(jobs) == is_pooled
        store.close()
        other.close()


def test_the_head_of_a_lane_that_is_empty_behind_the_cursor_too_is_none() -> None:
    """Else its worker would poll the lane again and again."""
    with schemas() as made:
        store = made.open(made.fresh(), clock=HandClock())
        store.add(new_jobs(3, lane=lane_of()))
        for token in (1, 2, 3):
            (job,) = claim(store, lane_of(), limit=1, token=token).jobs
            assert store.settle([Drop(job)]) == [True]
        assert claim(store, lane_of(), token=4).next_at_us == {lane_of(): None}
        store.close()


def test_an_insert_into_a_listed_lane_takes_one_trip(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    writes: list[object] = []
    write: Callable[..., object] = Connections.write

    def count(connections: Connections, work: Callable[[Database], object]) -> object:
        writes.append(work)
        return write(connections, work)

    monkeypatch.setattr(Connections, "write", count)
    for number, trips in ((1, 2), (2, 0), (3, 0)):  # the first one lists the lane
        writes.clear()
        assert store.add(new_jobs(4, first=10 * number, lane=lane_of())) == [True] * 4
        assert len(writes) <= trips
    assert len(claim(store, lane_of()).jobs) == 12
    assert store.add([new_job(30, lane=lane_of()), new_job(50, lane=lane_of())]) == [True] * 2
    assert len(claim(store, lane_of(), token=2).jobs) == 1
