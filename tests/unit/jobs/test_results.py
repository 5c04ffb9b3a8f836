"""How jobs ended, kept for a while (O7)."""

import pytest

from dueline.core.attempt import Outcome
from dueline.core.clock import DAY_US, SECOND_US
from dueline.core.errors import NotFound
from dueline.core.ids import Ids
from dueline.core.job import Job, JobId
from dueline.core.store import Commit, Delete, Put, Store
from dueline.jobs import results
from dueline.jobs.completion import Finished, finish, finish_of
from dueline.jobs.queue import Queues
from tests.harness.calls import call, claim_all, put
from tests.harness.clocks import NOW_US, HandClock
from tests.harness.failing_store import FailingStore


def keep(store: Store, job_id: JobId, outcome: Outcome, keep_us: int = DAY_US) -> None:
    """Keep an outcome."""
    commit = results.keep(job_id, outcome, keep_us=keep_us)
    assert store.commit(commit.partition, commit.writes)


def done(queues: Queues, job: Job, value: str = "7") -> None:
    """End a job as its handler's return does."""
    outcome = Outcome("done", queues.engine.time.latest_us(), value=value)
    end = finish_of(job, outcome, None, queues.engine.catalog.settings(job.lane.queue))
    assert finish(queues.engine.store, [Finished(job, end)]) == [True]


def test_a_result_is_there_once_the_job_is_done(queues: Queues) -> None:
    # C17
    put(queues, call(1))
    (job,) = claim_all(queues)
    done(queues, job, '{"a":[1]}')
    view = queues.find(job.id)
    assert (view.status, view.row) == ("done", None)
    assert view.outcome == Outcome("done", NOW_US, value='{"a":[1]}')


def test_a_result_is_gone_when_its_time_is_over(queues: Queues, clock: HandClock) -> None:
    # C17: TTL, counted from the end
    queues.engine.catalog.configure("default", keep_us=60 * SECOND_US)
    put(queues, call(1))
    (job,) = claim_all(queues)
    clock.advance(5)
    done(queues, job)
    clock.advance(us=60 * SECOND_US - 1)
    assert queues.find(job.id).status == "done"
    clock.advance(us=1)
    with pytest.raises(NotFound, match="kept long enough"):
        queues.find(job.id)


def test_nothing_is_kept_where_keep_is_nothing(queues: Queues) -> None:
    queues.engine.catalog.configure("default", keep_us=0)
    put(queues, call(1))
    (job,) = claim_all(queues)
    done(queues, job)
    with pytest.raises(NotFound):
        queues.find(job.id)


@pytest.mark.long
def test_each_result_is_found_among_its_neighbours(store: Store) -> None:
    # ids of one batch differ in their last digits only, and share partitions
    ids = Ids().many(3000, NOW_US)
    kept = ids[::3]
    for number, job_id in enumerate(kept):
        keep(store, job_id, Outcome("done", NOW_US, value=str(number)))
    outcomes = [results.read(store, job_id) for job_id in ids]
    assert [outcome.value for outcome in outcomes if outcome] == [
        str(number) for number in range(1000)
    ]
    assert [outcome is not None for outcome in outcomes] == [
        place % 3 == 0 for place in range(3000)
    ]


def test_neighbours_that_are_expired_hide_nothing(store: Store, clock: HandClock) -> None:
    ids = sorted(Ids().many(64, NOW_US))
    for job_id in ids[:-1]:
        keep(store, job_id, Outcome("done", NOW_US), keep_us=1)
    keep(store, ids[-1], Outcome("done", NOW_US, value="1"))
    clock.advance(us=1)
    assert [results.read(store, job_id) is not None for job_id in ids] == [False] * 63 + [True]


def test_a_look_up_is_one_read(store: Store) -> None:
    # find reads at most two
    job_id = Ids().one(NOW_US)
    keep(store, job_id, Outcome("cancelled", NOW_US, error="why"))
    counting = FailingStore(store, {})
    assert results.read(counting, job_id) == Outcome("cancelled", NOW_US, error="why")
    assert counting.calls == 1


def test_results_of_a_minute_are_spread_over_four_partitions() -> None:
    commits = [
        results.keep(job_id, Outcome("done", NOW_US), keep_us=1)
        for job_id in Ids().many(400, NOW_US)
    ]
    assert len({commit.partition for commit in commits}) == 4
    later = results.keep(Ids().one(NOW_US + 60 * SECOND_US), Outcome("done", 0), keep_us=1)
    assert later.partition not in {commit.partition for commit in commits}


def test_writes_to_one_partition_are_joined_in_their_order() -> None:
    first, second, third = Put("a", b"1", b""), Put("b", b"2", b""), Delete("c")
    commits = [Commit("x", (first,)), Commit("y", (second,)), Commit("x", (third,))]
    assert results.merged(commits) == [Commit("x", [first, third]), Commit("y", [second])]
