"""Results of jobs that end together, in records that they share (C17)."""

import random
from collections.abc import Sequence

import pytest

from dueline.core.attempt import Done, Ended, Outcome
from dueline.core.clock import DAY_US
from dueline.core.errors import NotFound, StoreCorrupt
from dueline.core.ids import Ids, derived
from dueline.core.job import UNCLAIMED_TOKEN, Job, JobId, Token
from dueline.core.queue_settings import QueueSettings
from dueline.core.store import Commit, Put, Record, Store
from dueline.jobs import results
from dueline.jobs.completion import Finished, finish, finish_of, successes
from dueline.jobs.queue import Queues
from dueline.tasks.handler import Handler
from dueline.worker.settler import Settler
from tests.harness.calls import calls, claim_all, put, row_of
from tests.harness.clocks import NOW_US, HandClock
from tests.harness.failing_store import FailingStore
from tests.harness.stepped_store import SteppedMemoryStore

TOKEN = Token(b"t" * 16)


def of(ids: Sequence[bytes], token: Token = TOKEN) -> list[Job]:
    """Return claimed jobs with these ids."""
    return [row_of(1)._replace(id=JobId(job_id), token=token) for job_id in ids]


def writes(
    jobs: Sequence[Job], values: Sequence[bytes] | None = None, at_us: int = NOW_US
) -> list[Commit]:
    """Return what keeps the results of jobs that end a microsecond after each other."""
    ended_us = [at_us + number for number in range(len(jobs))]
    values = values or [b"%d" % number for number in range(len(jobs))]
    return results.keep_done(jobs, ended_us, values, keep_us=DAY_US)


def records(commits: Sequence[Commit]) -> int:
    return sum(len(commit.writes) for commit in commits)


def keep(store: Store, commits: Sequence[Commit]) -> None:
    for commit in results.merged(commits):
        assert store.commit(commit.partition, commit.writes)


def found(store: Store, jobs: Sequence[Job]) -> list[Outcome | None]:
    """Look for outcomes in both ways, which find the same."""
    each = [results.read(store, job.id) for job in jobs]
    together = results.read_many(store, [job.id for job in jobs])
    assert [together.get(job.id) for job in jobs] == each
    return each


@pytest.mark.slow
def test_ids_of_one_call_share_records(store: Store) -> None:
    jobs = of(Ids().many(1000, NOW_US))
    kept = [job for place, job in enumerate(jobs) if place % 10]
    commits = writes(kept)
    assert records(commits) <= 12
    keep(store, commits)
    assert found(store, kept) == [
        Outcome("done", NOW_US + number, value=str(number)) for number in range(900)
    ]
    assert found(store, jobs[::10]) == [None] * 100


@pytest.mark.slow
def test_ids_of_separate_calls_share_records_by_their_time(store: Store) -> None:
    ids = Ids()
    jobs = of([ids.one(NOW_US + 100 * number) for number in range(1000)])
    commits = writes(jobs, [b"null"] * 1000)
    assert records(commits) <= 16
    keep(store, commits)
    assert found(store, jobs) == [
        Outcome("done", NOW_US + number, value="null") for number in range(1000)
    ]


def test_shared_records_are_found_by_the_first_digits_of_ids(store: Store) -> None:
    calls_of = [of(Ids().many(40, NOW_US + hour * 3_600_000_000)) for hour in range(0, 60, 9)]
    for jobs in calls_of:
        keep(store, writes(jobs))
    digits = {job.id.hex() for jobs in calls_of for job in jobs}
    prefixes = {results.prefix_of(job_id) for job_id in digits}
    assert len(prefixes) > 1
    for prefix in prefixes:
        shared = list(results.shared_near(store, [prefix]))
        near = {job_id for record in shared for job_id, _ in results.outcomes_in(record)}
        assert {results.first_of(record) for record in shared} <= near
        mine = {job_id for job_id in digits if job_id.startswith(prefix)}
        assert near == (mine if store.transactional else set())


def test_shared_records_between_wanted_ones_are_skipped(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    times_us = [NOW_US + 20_000 * number for number in range(600)]
    jobs_of = [of(Ids().many(8, at_us)) for at_us in times_us]
    for jobs in jobs_of:
        keep(store, writes(jobs))
    limits: list[int] = []
    read = store.read

    def counting(partition: str, *, after: str | None, limit: int) -> Sequence[Record]:
        limits.append(limit)
        return read(partition, after=after, limit=limit)

    monkeypatch.setattr(store, "read", counting)
    for chosen in (jobs_of, jobs_of[::150], jobs_of[300:500]):
        digits = {job.id.hex() for jobs in chosen for job in jobs}
        prefixes = {results.prefix_of(job_id) for job_id in digits}
        limits.clear()
        near = {
            job_id
            for record in results.shared_near(store, prefixes)
            for job_id, _ in results.outcomes_in(record)
        }
        assert near >= digits if store.transactional else not near
        assert len(limits) < 20


def test_records_of_a_cell_stay_few_in_any_order() -> None:
    # otherwise a reader of one result would read all of a large call
    ids = Ids().many(100_000, NOW_US)
    chosen = random.Random(1).sample(ids, 1000)
    assert records(writes(of(chosen))) == 1000


@pytest.mark.parametrize(
    "strange",
    [
        (of([derived(b"cause", 1)])[0], b"1"),
        (of(Ids().many(1, NOW_US))[0]._replace(opts=b"{}"), b"1"),
        (of(Ids().many(1, NOW_US))[0], b'"%s"' % (b"x" * 300)),
    ],
)
def test_some_jobs_have_records_of_their_own(store: Store, strange: tuple[Job, bytes]) -> None:
    # rule E7: others may enqueue such a job at the same time; a long result is read for itself
    job, value = strange
    jobs = [*of(Ids().many(100, NOW_US)), job]
    commits = writes(jobs, [b"null"] * 100 + [value])
    assert results.absent(job.id).partition in {commit.partition for commit in commits}
    keep(store, commits)
    assert found(store, jobs)[-1] == Outcome("done", NOW_US + 100, value=value.decode())
    assert not store.commit(*results.absent(job.id))


def test_two_workers_write_into_one_cell(store: Store) -> None:
    jobs = of(Ids().many(100, NOW_US))
    other = [job._replace(token=Token(b"u" * 16)) for job in jobs[1::2]]
    keep(store, writes(jobs[::2], [b"1"] * 50))
    keep(store, writes(other, [b"2"] * 50))
    assert [outcome and outcome.value for outcome in found(store, jobs)] == ["1", "2"] * 50


def test_of_two_ends_the_later_one_counts(store: Store) -> None:
    # an id is enqueued again once its outcome is gone
    jobs = of(Ids(bytes).many(8, NOW_US))
    again = [job._replace(token=Token(b"u" * 16)) for job in jobs]
    keep(store, writes(again, [b"2"] * 8, NOW_US + 100))
    keep(store, writes(jobs, [b"1"] * 8))
    assert [outcome and outcome.value for outcome in found(store, jobs)] == ["2"] * 8


def test_a_shared_result_is_kept_long_enough(store: Store, clock: HandClock) -> None:
    jobs = of(Ids(bytes).many(10, NOW_US))  # from zero on: in one cell
    keep(store, writes(jobs))
    clock.advance(us=DAY_US + 8)
    assert None not in found(store, jobs)
    clock.advance(us=1)
    assert found(store, jobs) == [None] * 10


def test_a_look_up_is_three_reads_at_most(store: Store) -> None:
    jobs = of(Ids().many(300, NOW_US))
    keep(store, writes(jobs[1:]))
    for job, reads in ((jobs[0], 3), (jobs[7], 3)):
        counting = FailingStore(store, {})
        results.read(counting, job.id)
        assert counting.calls <= reads


def test_a_completed_end_has_the_same_result_twice(clock: HandClock) -> None:
    store = SteppedMemoryStore(clock)
    jobs = of(Ids().many(100, NOW_US))
    keep(store, writes(jobs))
    ended = found(store, jobs)
    keep(store, writes([job._replace(token=Token(b"u" * 16)) for job in jobs]))
    keep(store, [results.keep(jobs[0].id, Outcome("done", NOW_US, value="0"), keep_us=DAY_US)])
    assert found(store, jobs) == ended
    assert None not in ended


def test_ends_without_transactions_share_records(clock: HandClock) -> None:
    store = SteppedMemoryStore(clock)
    jobs = of(Ids().many(40, NOW_US))
    outcome = Outcome("done", NOW_US, value="7")
    store.add([job._replace(token=UNCLAIMED_TOKEN) for job in jobs])
    ends = [
        Finished(
            job._replace(token=UNCLAIMED_TOKEN), finish_of(job, outcome, None, QueueSettings())
        )
        for job in jobs
    ]
    assert finish(store, ends) == [True] * 40
    assert found(store, jobs) == [outcome] * 40
    assert all(shares(store, job) for job in jobs)
    assert store.find([job.id for job in jobs]) == [None] * 40


def test_a_damaged_record_is_reported(store: Store) -> None:
    jobs = of(Ids(bytes).many(10, NOW_US))
    ((partition, (put, *_)), *_) = writes(jobs, [b"null"] * 10)
    assert isinstance(put, Put)
    store.commit(partition, [put._replace(value=put.value.replace(b'"many":10', b'"many":11'))])
    with pytest.raises(StoreCorrupt, match="lacks results of 11 jobs"):
        results.read(store, jobs[0].id)


# Workers


def run_all(queues: Queues) -> list[Job]:
    """Claim all jobs and end them as done, as a worker does."""
    jobs = claim_all(queues)
    ended = [Ended(job, Done(b"7"), NOW_US, NOW_US) for job in jobs]
    settler = Settler(queues.engine, dict[str, Handler](), random.Random(1))
    assert settler.settle(ended, ()) == []
    return jobs


def shares(store: Store, job: Job) -> bool:
    return store.commit(*results.absent(job.id))


def test_jobs_that_a_worker_ends_together_share_records(queues: Queues) -> None:
    put(queues, calls(0, 20))
    for job in run_all(queues):
        assert queues.find(job.id).outcome == Outcome("done", NOW_US, value="7")
        assert shares(queues.engine.store, job)


def test_nothing_is_shared_where_nothing_is_kept(queues: Queues) -> None:
    queues.engine.catalog.configure("default", keep_us=0)
    put(queues, calls(0, 20))
    for job in run_all(queues):
        with pytest.raises(NotFound):
            queues.find(job.id)


def test_an_ended_job_is_not_enqueued_again(queues: Queues) -> None:
    # rule E7: its call got no answer, but it was stored, and has run since
    put(queues, calls(0, 20))
    jobs = run_all(queues)
    queues.enqueue_again([job._replace(token=row_of(1).token) for job in jobs])
    assert claim_all(queues) == []


def test_each_queue_keeps_for_its_own_time(queues: Queues, clock: HandClock) -> None:
    queues.engine.catalog.configure("short", keep_us=1_000_000)
    put(queues, calls(0, 10), calls(0, 10, queue="short"))
    jobs = [
        *claim_all(queues),
        *claim_all(queues, *queues.engine.lanes_of("short")),
    ]
    done = [Ended(job, Done(b"7"), NOW_US, NOW_US) for job in jobs]
    settings = {queue: queues.engine.catalog.settings(queue) for queue in ("default", "short")}
    assert queues.engine.store.together([successes(done, settings)]) == [True]
    clock.advance(1)
    kept = found(queues.engine.store, jobs)
    assert [outcome is not None for outcome in kept] == [True] * 10 + [False] * 10
