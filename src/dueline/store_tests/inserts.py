"""Laws of inserts and repeated inserts."""

from dueline.core.job import Job, State
from dueline.core.store import Drop, Extend, Store
from dueline.store_tests.calls import (
    NOW_US,
    all_of,
    claim,
    id_of,
    lane_of,
    move,
    new_job,
    new_jobs,
    pointers_in,
    put_in,
    rows_in,
)
from dueline.store_tests.factory import StoreFactory

FULL = new_job(1, at_us=NOW_US + 5, body=bytes(range(256)))._replace(
    due_us=NOW_US - 12_345_678,
    enqueued_us=NOW_US - 1,
    task="module.sub.täsk",
    codec=255,
    opts=b'{"keep": 0}',
)
"""A new job each of whose values differs from the others and from the defaults."""


class InsertLaws:
    """A new job is stored once, unchanged, and exists until it ends."""

    def test_a_job_is_read_back_as_it_was_inserted(self, store: Store) -> None:
        put_in(store, FULL)
        assert rows_in(store, FULL.lane) == [FULL]
        assert list(store.find([FULL.id])) == [FULL]
        (claimed,) = claim(store, FULL.lane, now_us=FULL.at_us).jobs
        changed = ("at_us", "fence", "token", "worker", "claimed_us", "state")
        kept = [name for name in Job._fields if name not in changed]
        assert [getattr(claimed, name) for name in kept] == [getattr(FULL, name) for name in kept]

    def test_a_job_that_has_lived_is_read_back_as_it_was_added(self, store: Store) -> None:
        dead = FULL._replace(
            lane=lane_of(queue="laws!dead"),
            hop=1,
            fence=3,
            worker="host:1:abc",
            claimed_us=NOW_US - 2,
            errors=2,
            crashes=1,
            alone=True,
            state=State.DEAD,
            error="ValueError: no",
        )
        put_in(store, dead)
        assert rows_in(store, dead.lane) == [dead]
        assert list(store.find([dead.id])) == [dead]

    def test_bodies_of_any_size_are_kept(self, store: Store) -> None:
        sizes = (0, 1, 1023, 1024, 1025, 65_536, 262_144)
        jobs = [new_job(n, body=bytes([n]) * size) for n, size in enumerate(sizes)]
        put_in(store, *jobs)
        assert rows_in(store, lane_of()) == jobs
        assert all_of(store, jobs) == jobs
        claimed = claim(store, lane_of()).jobs
        assert [job.body for job in claimed] == [job.body for job in jobs]
        assert list(store.settle([Drop(job) for job in claimed])) == [True] * len(jobs)
        assert all_of(store, jobs) == [None] * len(jobs)

    def test_many_jobs_are_added_in_one_call(self, store: Store) -> None:
        lanes = [lane_of(priority=priority) for priority in range(5)]
        jobs = [new_job(number, lane=lanes[number % 5]) for number in range(1000)]
        put_in(store, *jobs)
        for number, lane in enumerate(lanes):
            assert rows_in(store, lane) == jobs[number::5]
        assert list(store.add([])) == []

    def test_a_job_that_is_added_again_is_there_once(self, store: Store) -> None:
        put_in(store, new_job(1), new_job(2))
        put_in(store, new_job(2), new_job(3))
        put_in(store, new_job(1), new_job(2), new_job(3))
        assert rows_in(store, lane_of()) == new_jobs(3)

    def test_adding_again_leaves_a_claim_as_it_is(self, store: Store) -> None:
        put_in(store, *new_jobs(2))
        (job,) = claim(store, lane_of(), limit=1).jobs
        store.settle([Extend(job, job.at_us + 1, started=True)])
        before = rows_in(store, lane_of())
        put_in(store, *new_jobs(2))
        assert rows_in(store, lane_of()) == before

    def test_adding_again_leaves_a_moved_job_as_it_is(self, store: Store) -> None:
        put_in(store, new_job(1))
        (job,) = claim(store, lane_of()).jobs
        store.settle([move(job, NOW_US + 60_000_000, errors=1)])
        before = rows_in(store, lane_of())
        put_in(store, new_job(1))
        assert rows_in(store, lane_of()) == before

    def test_adding_again_leaves_a_carried_job_where_it_is(self, store: Store) -> None:
        put_in(store, new_job(1))
        other = lane_of(priority=1)
        store.settle([move(new_job(1), NOW_US, to=other)])
        (carried,) = rows_in(store, other)
        put_in(store, new_job(1))
        assert rows_in(store, lane_of()) == []
        assert rows_in(store, other) == [carried]

    def test_adding_again_never_hides_a_lane(self, store: Store) -> None:
        put_in(store, new_job(1))
        put_in(store, new_job(1))
        assert lane_of() in {pointer.lane for pointer in pointers_in(store)}

    def test_jobs_are_found_in_the_order_of_the_ids(self, store: Store) -> None:
        put_in(store, *new_jobs(3))
        jobs = store.find([id_of(3), id_of(99), id_of(1)])
        assert list(jobs) == [new_job(3), None, new_job(1)]
        assert list(store.find([])) == []

    def test_what_was_added_is_there_when_the_store_is_opened_again(
        self, factory: StoreFactory
    ) -> None:
        url = factory.fresh()
        store = factory.open(url)
        put_in(store, *new_jobs(3))
        (job,) = claim(store, lane_of(), limit=1).jobs
        store.close()
        store = factory.open(url)
        assert rows_in(store, lane_of()) == [new_job(2), new_job(3), job]
        assert lane_of() in {pointer.lane for pointer in pointers_in(store)}
        store.close()

    def test_two_that_are_open_at_once_see_the_same(self, factory: StoreFactory) -> None:
        url = factory.fresh()
        first, second = factory.open(url), factory.open(url)
        put_in(first, *new_jobs(3))
        (job,) = claim(second, lane_of(), limit=1).jobs
        assert rows_in(first, lane_of()) == [new_job(2), new_job(3), job]
        assert list(first.settle([Drop(job)])) == [True]
        assert list(second.settle([Drop(job)])) == [False]
        first.close()
        second.close()
