"""What happened, as a stream."""

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dueline.core.attempt import Attempt, Done, Ended, Failed, digest_of
from dueline.core.errors import StoreCorrupt
from dueline.core.job import Job, State
from dueline.core.lane import Lane
from dueline.core.store import Row, Store
from dueline.jobs.history import (
    Follower,
    attempt_of,
    attempts,
    died,
    died_as,
    row_of,
    rows_of_ended,
)
from dueline.jobs.history_batch import ATTEMPTS_MAX, attempts_in, is_bundle, size_of, unbundled
from tests.harness.clocks import NOW_US
from tests.harness.history_rows import JOBS, claimed, done_of, rows_of_each


def ended(job: Job, ended_us: int = NOW_US) -> Attempt:
    """Make what history says of an attempt."""
    return attempt_of(Ended(job, Done(b"1"), NOW_US - 5, ended_us), outcome="done", error="")


def test_an_attempt_says_all_that_lateness_and_blame_are_made_of() -> None:
    # V2, V5
    failed = Failed("ValueError", "no", "Traceback …", retry=True)
    job = claimed()
    attempt = attempt_of(
        Ended(job, failed, NOW_US - 5, NOW_US), outcome="retried", error="ValueError: no"
    )
    assert attempt == Attempt(
        job=job.id.hex(),
        task="tests.task",
        queue="mail",
        tenant="acme",
        priority=-7,
        enqueued_us=NOW_US - 60,
        due_us=NOW_US - 50,
        claimed_us=NOW_US - 10,
        started_us=NOW_US - 5,
        ended_us=NOW_US,
        outcome="retried",
        error="ValueError: no",
        worker="here:1:abcd",
        fence=3,
    )


def test_a_row_lies_at_its_end_in_the_stream_and_shard_of_its_queue() -> None:
    row = row_of(ended(claimed(shard=6)), claimed(shard=6))
    assert (row.stream, row.shard, row.at_us) == ("mail!history", 6, NOW_US)


def test_a_claim_has_one_row_however_often_it_is_told() -> None:
    # invariant 2: a repeat adds nothing
    assert row_of(ended(claimed()), claimed()) == row_of(ended(claimed()), claimed())
    ids = {
        row_of(ended(job), job).id
        for job in (claimed(), claimed(fence=4), claimed(2), claimed(2, fence=4))
    }
    assert len(ids) == 4


def unplaced(rows: Iterable[Row]) -> list[Row]:
    """Leave out where rows lie."""
    return sorted(row._replace(at_us=0) for row in rows)


@pytest.mark.long
@given(jobs=st.lists(JOBS, max_size=9, unique_by=lambda job: job.id))
def test_rows_of_many_that_are_done_stand_for_those_of_each(jobs: list[Job]) -> None:
    done = done_of(jobs)
    rows = rows_of_ended(done)
    assert unplaced(single for row in rows for single in unbundled(row)) == unplaced(
        rows_of_each(done)
    )
    assert sum(map(size_of, rows)) == len(jobs)
    ends = {ended.job.id.hex(): ended.ended_us for ended in done}
    for row in rows:
        assert row.at_us == max(ends[told.job] for _, told in attempts_in(row))


def test_a_bundle_tells_what_each_of_its_attempts_would() -> None:
    # V2: the same claim, many lanes; said once what is the same
    jobs = [
        claimed(n)._replace(
            lane=Lane("mail", 0, 5, n % 3, f"tenant{n % 7}"), enqueued_us=NOW_US - n, due_us=NOW_US
        )
        for n in range(2 * ATTEMPTS_MAX + 1)
    ]
    done = done_of(jobs)
    rows = rows_of_ended(done)
    assert list(map(size_of, rows)) == [ATTEMPTS_MAX, ATTEMPTS_MAX, 1]
    assert [is_bundle(row) for row in rows] == [True, True, True]
    assert [row.body.count(b"tests.task") for row in rows] == [1, 1, 1]
    singles = [single for row in rows for single in unbundled(row)]
    assert unplaced(singles) == unplaced(rows_of_each(done))
    assert {single.at_us for single in singles[:ATTEMPTS_MAX]} == {NOW_US + ATTEMPTS_MAX + 2}
    assert sum(len(row.body) for row in rows) < sum(len(row.body) for row in singles) / 2


def test_attempts_of_one_shard_share_a_row() -> None:
    first = claimed(1)
    for other, many in (
        (claimed(2, fence=4), 1),
        (claimed(2)._replace(task="other"), 1),
        (claimed(2)._replace(worker="there:1:abcd"), 1),
        (claimed(2, shard=1), 2),
        (claimed(2)._replace(lane=Lane("post", 0, 5, -7, "acme")), 2),
    ):
        assert len(rows_of_ended(done_of([first, other]))) == many


@pytest.mark.parametrize("cut", [2, 4, 40, -1])
def test_a_damaged_bundle_is_told_as_damage(cut: int) -> None:
    (row,) = rows_of_ended(done_of([claimed(n) for n in (1, 2, 3)]))
    with pytest.raises(StoreCorrupt):
        attempts_in(row._replace(body=row.body[:cut]))


def test_attempts_of_bundles_are_read_like_others_and_once(store: Store) -> None:
    # rule F3: by the ids of attempts, whatever rows they are told in
    jobs = [claimed(n) for n in range(1, 31)]
    done = done_of(jobs)
    store.append([*rows_of_ended(done[:25]), *rows_of_each(done[25:])])
    follower = Follower(store, since_us=NOW_US - 1)
    assert [attempt.job for attempt in follower.read({"mail": 1})] == [job.id.hex() for job in jobs]
    late = row_of(died(jobs[3]), jobs[3])
    store.append([late])
    assert follower.read({"mail": 1}) == []
    past = list(attempts(store, "mail", 1))
    assert sorted(attempt.job for attempt in past) == sorted(job.id.hex() for job in jobs)
    assert {attempt.outcome for attempt in past} == {"done"}


def test_a_follower_returns_attempts_in_the_order_of_their_ends(store: Store) -> None:
    rows = [
        row_of(ended(job, NOW_US + end), job)._replace(stream=f"{queue}!history", shard=shard)
        for end, (queue, shard) in enumerate([("b", 1), ("a", 0), ("b", 0), ("a", 1)] * 3)
        for job in [claimed(end)]
    ]
    store.append(rows[::-1])
    past = Follower(store, since_us=NOW_US - 1).read({"a": 2, "b": 2})
    assert [attempt.ended_us - NOW_US for attempt in past] == list(range(12))


def test_the_attempt_of_a_dead_worker_ends_with_its_lease() -> None:
    # R1: the next claimer writes it, of the row as it was
    attempt = died(claimed()._replace(state=State.STARTED))
    assert (attempt.outcome, attempt.error) == ("crashed", "The worker died, or lost its lease.")
    assert (attempt.started_us, attempt.ended_us) == (0, NOW_US + 90)
    assert (attempt.worker, attempt.fence) == ("here:1:abcd", 3)
    poison = died_as(claimed(), "dead", "Poison")
    assert (poison.outcome, poison.error, poison.ended_us) == ("dead", "Poison", NOW_US + 90)


def test_a_job_that_a_dead_worker_had_not_started_was_given_back() -> None:
    # it has not crashed: another job of the worker has
    attempt = died(claimed()._replace(state=State.CLAIMED))
    assert (attempt.outcome, attempt.ended_us) == ("given_back", NOW_US + 90)
    assert "before it noted that the job had started" in attempt.error


def test_a_worker_that_tells_its_own_end_and_the_next_claimer_write_one_id() -> None:
    job = claimed()
    assert row_of(died(job), job).id == row_of(ended(job), job).id


def test_attempts_are_read_shard_by_shard_in_the_order_of_their_ends(store: Store) -> None:
    # V2; more than a page of them
    for shard in (0, 2):
        jobs = [claimed(number, shard=shard) for number in range(1, 1102)]
        store.append([row_of(ended(job, NOW_US + 5000 - n), job) for n, job in enumerate(jobs)])
    other = claimed()._replace(lane=Lane("other", 0, 5, 0, ""))
    store.append([row_of(ended(other), other)])
    past = list(attempts(store, "mail", 3))
    assert len(past) == 2202
    ends = [attempt.ended_us for attempt in past]
    assert ends[:1101] == ends[1101:] == list(range(NOW_US + 3900, NOW_US + 5001))
    assert len(list(attempts(store, "mail", 1))) == 1101
    assert list(attempts(store, "nothing", 3)) == []


def test_a_page_that_is_just_full_is_not_the_last(store: Store) -> None:
    jobs = [claimed(number) for number in range(1, 1001)]
    store.append([row_of(ended(job), job) for job in jobs])
    assert len(list(attempts(store, "mail", 1))) == 1000


def test_attempts_are_read_from_an_instant_on(store: Store) -> None:
    jobs = [claimed(number) for number in range(1, 11)]
    store.append([row_of(ended(job, NOW_US + n), job) for n, job in enumerate(jobs)])
    past = attempts(store, "mail", 1, since_us=NOW_US + 7)
    assert [attempt.ended_us - NOW_US for attempt in past] == [7, 8, 9]


def test_a_claim_whose_rows_have_other_ids_is_read_once_and_each_run_of_a_job(store: Store) -> None:
    # rule F3: as versions side by side write them, and the version before two runs of a job
    job = claimed()
    again = job._replace(enqueued_us=job.enqueued_us + 7)
    rows = [row_of(ended(job), job), row_of(died(job), job)._replace(id=b"7" * 16)]
    rows.append(row_of(ended(again, NOW_US + 95), again)._replace(id=rows[0].id))
    store.append(rows)
    follower = Follower(store, since_us=NOW_US - 1)
    for past in (list(attempts(store, "mail", 1)), follower.read({"mail": 1})):
        assert [attempt.enqueued_us for attempt in past] == [job.enqueued_us, again.enqueued_us]
    assert follower.read({"mail": 1}) == []


def test_the_end_of_a_job_that_is_done_has_the_digest_of_its_result() -> None:
    job, failed = claimed(1), Failed("ValueError", "no", "", retry=True)
    values = [b"1", b"2", b"", b"1"]
    done = [Ended(claimed(n), Done(value), 1, 2) for n, value in enumerate(values)]
    digests = [attempt.digest for row in rows_of_ended(done) for _, attempt in attempts_in(row)]
    assert digests == [digest_of(b"1"), digest_of(b"2"), "", digest_of(b"1")]
    assert digest_of(b"1") == "6b86b273ff34fce1"  # echo -n 1 | sha256sum
    alike = rows_of_ended([ended._replace(ending=Done(b"null")) for ended in done])
    assert {attempt.digest for _, attempt in attempts_in(alike[0])} == {digest_of(b"null")}
    assert alike[0].body.count(bytes.fromhex(digest_of(b"null"))) == 1
    assert attempt_of(Ended(job, failed, 1, 2), outcome="retried", error="no").digest == ""
