"""Laws of exclusive claims among threads."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import chain
from threading import Barrier
from typing import TypeVar

from dueline.core.job import Job, JobId
from dueline.core.store import NO_VERSION, Drop, Put, Store
from dueline.store_tests.calls import (
    LEASE_US,
    NOW_US,
    ROUNDS_MAX,
    claim,
    count_up,
    id_of,
    ids_of,
    lane_of,
    new_job,
    new_jobs,
    put_in,
    read_count,
    records_in,
    rows_in,
    token_of,
)

Answer = TypeVar("Answer")

THREADS = 4


def at_once(act: Callable[[int], Answer], *, actors: int = THREADS) -> Sequence[Answer]:
    """Run a function in several threads that start together; each gets its number."""
    barrier = Barrier(actors)

    def start(number: int) -> Answer:
        barrier.wait(timeout=60)
        return act(number)

    with ThreadPoolExecutor(actors) as pool:
        return [run.result(timeout=300) for run in [pool.submit(start, n) for n in range(actors)]]


def _drop(store: Store, job: Job, _thread: int) -> bool:
    return store.settle([Drop(job)])[0]


class ExclusionLaws:
    """Of several threads that want the same at the same time, one gets it."""

    def test_a_claimed_job_is_nobody_elses_until_the_lease_ends(self, store: Store) -> None:
        lane = lane_of()
        put_in(store, *new_jobs(3))
        assert len(claim(store, lane, limit=2).jobs) == 2
        late_us = NOW_US + LEASE_US - 1
        assert ids_of(claim(store, lane, now_us=late_us, token=2).jobs) == [id_of(3)]
        assert ids_of(claim(store, lane, now_us=late_us, token=3).jobs) == []

    def test_threads_claim_each_job_once(self, store: Store) -> None:
        lanes = [lane_of(priority=priority) for priority in range(3)]
        for number, lane in enumerate(lanes):
            put_in(store, *new_jobs(100, first=1 + 100 * number, lane=lane))

        def claim_until_empty(thread: int) -> list[JobId]:
            mine: list[JobId] = []
            for number in range(ROUNDS_MAX):
                token = 1 + thread * ROUNDS_MAX + number
                jobs = claim(store, *lanes, limit=7, token=token).jobs
                assert {job.token for job in jobs} <= {token_of(token)}
                mine += ids_of(jobs)
                if not jobs:
                    break
            return mine

        claims = at_once(claim_until_empty)
        assert sorted(chain.from_iterable(claims)) == [id_of(number) for number in range(1, 301)]

    def test_of_many_threads_that_finish_a_claim_one_succeeds(self, store: Store) -> None:
        put_in(store, *new_jobs(20))
        for job in claim(store, lane_of()).jobs:
            drops = at_once(partial(_drop, store, job))
            assert sorted(drops) == [False] * (THREADS - 1) + [True]

    def test_threads_that_add_the_same_jobs_store_each_once(self, store: Store) -> None:
        jobs = new_jobs(50)
        answers = at_once(lambda _: store.add(jobs))
        assert [list(answer) for answer in answers] == [[True] * 50] * THREADS
        assert rows_in(store, lane_of()) == jobs

    def test_threads_count_up_a_record_without_losing_one(self, store: Store) -> None:
        unknown = sum(at_once(lambda thread: count_up(store, times=25, writer=thread)))
        assert 25 * THREADS <= read_count(store)[0] <= 25 * THREADS + unknown

    def test_threads_that_extend_logs_at_once_are_judged_each_by_itself(self, store: Store) -> None:
        def extend(thread: int) -> list[bool]:
            partition, held = f"log-{thread}", []
            opened = token_of(1 + thread)
            for number in range(20):
                expect = NO_VERSION if number == 0 else opened
                if is_late(thread, number):
                    expect = token_of(1000)  # as if another claim had opened the log
                held.append(
                    store.commit(
                        partition,
                        [
                            Put("opened", opened, b"", expect=expect),
                            Put(f"{number:03}", token_of(2000 + number), b"", expect=NO_VERSION),
                        ],
                    )
                )
            return held

        def is_late(thread: int, number: int) -> bool:
            return number > 0 and (thread + number) % THREADS == 0

        answers = at_once(extend)
        for thread, held in enumerate(answers):
            assert held == [not is_late(thread, number) for number in range(20)]
            keys = [record.key for record in records_in(store, f"log-{thread}")]
            written = [f"{number:03}" for number in range(20) if not is_late(thread, number)]
            assert keys == [*written, "opened"]

    def test_threads_that_add_and_sweep_hide_no_job(self, store: Store) -> None:
        def add_or_sweep(thread: int) -> None:
            for number in range(50):
                at_us = NOW_US + number * 10_000_000
                if thread == 0:
                    store.sweep("laws", 0, now_us=at_us, width_us=10_000_000)
                else:
                    put_in(store, new_job(thread * 100 + number, at_us=at_us))

        at_once(add_or_sweep)
        page = store.lanes("laws", 0, until_bucket=2**50, after=None, limit=1000)
        listed = {pointer.lane for pointer in page.pointers}
        assert sum(len(rows_in(store, lane)) for lane in listed) == 50 * (THREADS - 1)
