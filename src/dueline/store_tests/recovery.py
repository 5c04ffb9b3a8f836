"""Laws of recovery after a worker has died (rule A4)."""

from dueline.core.job import State
from dueline.core.store import Extend, Store
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
    put_in,
    row_with,
    rows_in,
    token_of,
)
from dueline.store_tests.factory import StoreFactory

END_US = NOW_US + LEASE_US


class RecoveryLaws:
    """The jobs of a dead worker become due again by themselves."""

    def test_a_job_is_due_again_when_its_lease_ends(self, store: Store) -> None:
        put_in(store, *new_jobs(2))
        claim(store, lane_of())
        assert ids_of(claim(store, lane_of(), now_us=END_US - 1, token=2).jobs) == []
        assert ids_of(claim(store, lane_of(), now_us=END_US, token=3).jobs) == [id_of(1), id_of(2)]

    def test_a_job_is_due_again_after_the_store_was_opened_again(
        self, factory: StoreFactory
    ) -> None:
        url = factory.fresh()
        store = factory.open(url)
        put_in(store, new_job(1))
        (before,) = claim(store, lane_of()).jobs
        store.close()
        store = factory.open(url)
        claimed = claim(store, lane_of(), now_us=END_US, token=2)
        assert ids_of(claimed.jobs) == [id_of(1)]
        assert claimed.died == {id_of(1): before}
        store.close()

    def test_a_claim_says_what_it_wrote(self, store: Store) -> None:
        put_in(store, new_job(1))
        (job,) = claim(store, lane_of(), now_us=NOW_US + 5, worker="host:1", token=7).jobs
        assert job == new_job(1)._replace(
            at_us=NOW_US + 5 + LEASE_US,
            fence=1,
            token=token_of(7),
            worker="host:1",
            claimed_us=NOW_US + 5,
            state=State.CLAIMED,
        )
        assert rows_in(store, lane_of()) == [job]

    def test_a_claim_reports_the_rows_that_died_as_they_were(self, store: Store) -> None:
        put_in(store, *new_jobs(3))
        given_back, *lost = claim(store, lane_of(), worker="first").jobs
        store.settle([move(given_back, END_US)])
        claimed = claim(store, lane_of(), now_us=END_US, worker="second", token=2)
        assert ids_of(claimed.jobs) == [id_of(1), id_of(2), id_of(3)]
        assert claimed.died == {job.id: job for job in lost}

    def test_a_first_claim_reports_nobody_dead(self, store: Store) -> None:
        put_in(store, *new_jobs(3))
        assert claim(store, lane_of()).died == {}

    def test_a_claim_that_died_on_a_started_job_counts_a_crash(self, store: Store) -> None:
        put_in(store, new_job(1))
        (job,) = claim(store, lane_of()).jobs
        store.settle([Extend(job, END_US, started=True)])
        claimed = claim(store, lane_of(), now_us=END_US, token=2)
        (again,) = claimed.jobs
        assert (again.crashes, again.alone, again.state) == (1, True, State.CLAIMED)
        was = claimed.died[id_of(1)]
        assert (was.crashes, was.alone, was.state) == (0, False, State.STARTED)

    def test_a_claim_that_died_before_the_start_counts_no_crash(self, store: Store) -> None:
        put_in(store, new_job(1))
        (job,) = claim(store, lane_of()).jobs
        store.settle([Extend(job, END_US)])
        (again,) = claim(store, lane_of(), now_us=END_US, token=2).jobs
        assert (again.crashes, again.alone, again.fence) == (0, False, 2)

    def test_a_job_once_started_stays_so_until_its_verdict(self, store: Store) -> None:
        put_in(store, new_job(1))
        (job,) = claim(store, lane_of()).jobs
        store.settle([Extend(job, END_US, started=True)])
        store.settle([Extend(job, END_US + 1)])
        assert row_with(store, id_of(1)).state == State.STARTED
        (again,) = claim(store, lane_of(), now_us=END_US + 1, token=2).jobs
        assert again.crashes == 1

    def test_each_crash_counts_once(self, store: Store) -> None:
        put_in(store, new_job(1))
        (job,) = claim(store, lane_of()).jobs
        store.settle([Extend(job, END_US, started=True)])
        (job,) = claim(store, lane_of(), now_us=END_US, token=2).jobs
        later_us = END_US + LEASE_US
        (job,) = claim(store, lane_of(), now_us=later_us, token=3).jobs
        assert (job.crashes, job.alone) == (1, True)
        store.settle([Extend(job, later_us + LEASE_US, started=True)])
        (job,) = claim(store, lane_of(), now_us=later_us + LEASE_US, token=4).jobs
        assert (job.crashes, job.fence) == (2, 4)

    def test_a_job_that_was_given_back_did_not_die(self, store: Store) -> None:
        put_in(store, new_job(1))
        (job,) = claim(store, lane_of()).jobs
        store.settle([Extend(job, END_US, started=True)])
        store.settle([move(job, NOW_US + 1)])
        claimed = claim(store, lane_of(), now_us=NOW_US + 1, token=2)
        assert claimed.died == {}
        assert [(again.crashes, again.alone) for again in claimed.jobs] == [(0, False)]

    def test_an_extended_claim_is_left_alone(self, store: Store) -> None:
        put_in(store, new_job(1))
        (job,) = claim(store, lane_of()).jobs
        assert list(store.settle([Extend(job, END_US + 5)])) == [True]
        assert ids_of(claim(store, lane_of(), now_us=END_US + 4, token=2).jobs) == []
        assert ids_of(claim(store, lane_of(), now_us=END_US + 5, token=3).jobs) == [id_of(1)]
