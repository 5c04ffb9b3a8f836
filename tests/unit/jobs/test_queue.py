"""Putting jobs in, finding and changing them."""

import zlib
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dueline.core.clock import DAY_US, SECOND_US
from dueline.core.errors import BadInput, NotFound
from dueline.core.job import UNCLAIMED_TOKEN, Job, JobId, State
from dueline.core.lane import Lane
from dueline.core.queue_settings import QueueSettings
from dueline.core.store import Drop, Move
from dueline.core.validation import DUE_AHEAD_US_MAX
from dueline.jobs import cancel_requests
from dueline.jobs.queue import Queues
from dueline.stores.memory.store import MemoryStore
from dueline.worker.claimer import Claimer
from tests.harness.calls import WIDTH_US, call, calls, claim_all, number_of, numbers, put, row_in
from tests.harness.clocks import NOW_US, HandClock
from tests.harness.failing_store import FailingStore
from tests.harness.queues import queues_on

PRIORITIES = (2**31 - 1, 50, 0, -1, -(2**31))


def drain(queues: Queues, limit: int = 10) -> list[int]:
    """Claim all that is due as a worker does, by numbers."""
    claimer = Claimer(queues.engine, ["default"], "drain")
    claimer.refresh()
    numbers: list[int] = []
    while taken := claimer.claim(limit, {}):
        numbers += [number_of(claimed_job.job) for claimed_job in taken]
    return numbers


def retry_at(queues: Queues, job: Job, at_us: int) -> None:
    """Move a job as a failure does."""
    move = Move(job, at_us, queues.engine.ids.token(), at_us // WIDTH_US, errors=1, crashes=0)
    assert queues.engine.store.settle([move]) == [True]


# --- enqueue ---------------------------------------------------------------------------------


def test_a_job_is_stored_as_it_was_given(queues: Queues) -> None:
    # C1
    (job,) = put(queues, call(7, queue="mail", priority=-5, tenant="acme", due_us=NOW_US + 9))
    assert row_in(queues.engine.store, job.id) == job
    assert job.lane == Lane("mail", 0, (NOW_US + 9) // WIDTH_US, -5, "acme")
    assert (job.due_us, job.pos_us, job.at_us, job.enqueued_us) == (
        NOW_US + 9,
        NOW_US + 9,
        NOW_US + 9,
        NOW_US,
    )
    assert (job.task, job.body, job.hop, job.fence, job.token) == (
        "tests.task",
        b"[7]",
        0,
        0,
        UNCLAIMED_TOKEN,
    )


def test_a_job_without_a_due_time_is_due_now(queues: Queues) -> None:
    (job,) = put(queues, call())
    assert job.due_us == job.at_us == NOW_US


def test_of_jobs_that_were_never_claimed_no_requests_are_read(queues: Queues) -> None:
    rows = put(queues, calls(0, 2))
    counting = FailingStore(queues.engine.store, {})
    before = counting.calls
    assert cancel_requests.withdraw(counting, rows) == rows
    assert counting.calls == before


def test_a_due_time_that_is_past_is_kept_and_the_job_is_ready(queues: Queues) -> None:
    # lateness = start - due: what was asked for must not be changed
    (job,) = put(queues, call(due_us=NOW_US - DAY_US))
    assert (job.due_us, job.pos_us, job.at_us) == (NOW_US - DAY_US, NOW_US, NOW_US)
    assert job.lane.bucket == NOW_US // WIDTH_US


@pytest.mark.parametrize(
    "ahead_us", [1, SECOND_US, 3600 * SECOND_US, 730 * DAY_US, DUE_AHEAD_US_MAX]
)
def test_a_job_waits_for_its_time_at_any_horizon(
    queues: Queues, clock: HandClock, ahead_us: int
) -> None:
    # T1: from now to ten years ahead, never early
    (job,) = put(queues, call(1, due_us=NOW_US + ahead_us))
    assert queues.find(job.id).status == "scheduled"
    clock.advance(us=ahead_us - 1)
    assert drain(queues) == []
    clock.advance(us=1)
    assert queues.find(job.id).status == "ready"
    assert drain(queues) == [1]


@pytest.mark.parametrize("due_us", [NOW_US + DUE_AHEAD_US_MAX + 1, -1, 2**63])
def test_a_due_time_out_of_range_is_refused_and_nothing_is_written(
    queues: Queues, due_us: int
) -> None:
    with pytest.raises(BadInput, match="due"):
        put(queues, call(1, due_us=due_us))
    assert drain(queues) == []


@pytest.mark.parametrize("priority", [2**31, -(2**31) - 1, True, 1.0, "1", None])
def test_a_priority_that_is_no_signed_32_bit_integer_is_refused(
    queues: Queues, priority: int
) -> None:
    with pytest.raises(BadInput, match="priority"):
        put(queues, call(1, priority=priority))
    assert drain(queues) == []


@pytest.mark.parametrize("tenant", ["x" * 256, "a\0b", 3, None])
def test_a_tenant_that_is_no_name_is_refused(queues: Queues, tenant: str) -> None:
    with pytest.raises(BadInput, match="tenant"):
        put(queues, call(1, tenant=tenant))


def test_a_tenant_of_the_largest_length_passes(queues: Queues) -> None:
    (job,) = put(queues, call(1, tenant="ü" * 255))
    assert row_in(queues.engine.store, job.id).lane.tenant == "ü" * 255


def test_a_queue_whose_name_is_refused_is_not_made(queues: Queues) -> None:
    with pytest.raises(BadInput, match="queue name"):
        put(queues, call(1, queue="Mail"))
    assert queues.engine.catalog.names() == []


def test_no_calls_are_no_jobs(queues: Queues) -> None:
    assert put(queues, calls(0, 0)) == []
    assert list(queues.engine.lanes_of("default")) == []


def test_priority_is_strict_and_inside_it_the_first_comes_first(queues: Queues) -> None:
    # T2
    put(queues, *(call(n, priority=PRIORITIES[n % 5]) for n in range(50)))
    expected = sorted(range(50), key=lambda n: (-PRIORITIES[n % 5], n))
    assert drain(queues, limit=7) == expected


def test_bulk_keeps_the_order_of_the_calls_and_answers_in_it(queues: Queues) -> None:
    # C2
    jobs = put(queues, calls(0, 3000))
    assert numbers(jobs) == list(range(3000))
    assert drain(queues, limit=500) == list(range(3000))


def test_one_by_one_is_the_same_order_as_in_bulk(queues: Queues) -> None:
    for number in range(100):
        put(queues, call(number))
    assert drain(queues) == list(range(100))


def test_jobs_due_earlier_come_first_whenever_they_were_enqueued(
    queues: Queues, clock: HandClock
) -> None:
    put(queues, *(call(n, due_us=NOW_US + (9 - n) * SECOND_US) for n in range(10)))
    clock.advance(60)
    assert drain(queues) == list(range(9, -1, -1))


def test_jobs_are_spread_over_shards_by_their_ids(queues: Queues) -> None:
    # H2: all at one instant, within 10 % of even
    queues.engine.catalog.configure("default", shards=4)
    jobs = put(queues, calls(0, 8000))
    counts = Counter(job.lane.shard for job in jobs)
    assert sorted(counts) == [0, 1, 2, 3]
    assert all(abs(count - 2000) <= 200 for count in counts.values())
    assert all(job.lane.shard == zlib.crc32(job.id) % 4 for job in jobs)


# --- look-up ---------------------------------------------------------------------------------


def test_a_job_is_found_in_each_of_its_states(queues: Queues, clock: HandClock) -> None:
    # V1
    (job,) = put(queues, call(due_us=NOW_US + 5))
    assert queues.find(job.id).status == "scheduled"
    clock.advance(us=5)
    assert queues.find(job.id).status == "ready"
    (taken,) = claim_all(queues)
    assert queues.find(job.id).status == "running"
    retry_at(queues, taken, NOW_US + DAY_US)
    assert queues.find(job.id).status == "retrying"
    clock.advance(us=2 * DAY_US)
    assert queues.find(job.id).status == "ready"


def test_a_job_whose_worker_died_is_ready(queues: Queues, clock: HandClock) -> None:
    # R1
    (job,) = put(queues, call())
    claim_all(queues, lease_us=SECOND_US)
    clock.advance(1)
    assert queues.find(job.id).status == "ready"


def test_what_is_not_known_is_not_found(queues: Queues) -> None:
    with pytest.raises(NotFound, match=f"No job {'00' * 15}07 is known"):
        queues.find(JobId((7).to_bytes(16)))


def test_lanes_and_jobs_are_listed_each_once_future_ones_too(queues: Queues) -> None:
    many = [call(n, priority=n, due_us=NOW_US + n * DAY_US) for n in range(600)]
    jobs = put(queues, *many)
    retry_at(queues, jobs[599], NOW_US)  # its lane is listed a second time now
    assert Counter(queues.engine.lanes_of("default")) == Counter(job.lane for job in jobs)
    put(queues, calls(0, 1100, queue="wide"))
    assert sorted(numbers(list(queues.engine.jobs_of("wide")))) == list(range(1100))


# --- peek ------------------------------------------------------------------------------------


def test_peek_claims_nothing_and_shows_what_is_due(queues: Queues) -> None:
    # V3
    put(queues, call(1), call(2, priority=9), call(3, due_us=NOW_US + 1), call(4))
    assert numbers(queues.peek("default", 10)) == [2, 1, 4]
    assert numbers(queues.peek("default", 2)) == [2, 1]
    assert queues.peek("default", 0) == []
    assert drain(queues) == [2, 1, 4]
    assert queues.peek("default", 10) == []


def test_peek_sees_what_a_lane_holds_beyond_a_page_of_the_plan(queues: Queues) -> None:
    put(queues, *(call(n, tenant="ab"[n % 2]) for n in range(40)))
    put(queues, *(call(n, tenant="a") for n in range(40, 60)))
    assert sorted(numbers(queues.peek("default", 60))) == list(range(60))


jobs_anywhere = st.lists(
    st.tuples(
        st.sampled_from(PRIORITIES[1:4]),
        st.sampled_from(("", "a", "b")),
        st.integers(0, 3),  # days until it is due
        st.one_of(st.none(), st.integers(0, 5)),  # days until its retry is due
    ),
    max_size=25,
)


@given(jobs_anywhere, st.integers(1, 30), st.integers(1, 2))
def test_peek_shows_the_order_in_which_a_worker_would_claim(
    jobs: list[tuple[int, str, int, int | None]], limit: int, shards: int
) -> None:
    # V3: the next n in true order, over priorities, tenants, buckets and shards
    clock = HandClock()
    store = MemoryStore(clock)
    queues = queues_on(store, clock, QueueSettings(shards, shards))
    rows = put(
        queues,
        *(
            call(number, priority=priority, tenant=tenant, due_us=NOW_US + days * DAY_US)
            for number, (priority, tenant, days, _) in enumerate(jobs)
        ),
    )
    for row, (*_, days) in zip(rows, jobs, strict=True):
        if days is not None:
            retry_at(queues, row, NOW_US + days * DAY_US)
    clock.advance(us=3 * DAY_US)
    peeked = numbers(queues.peek("default", limit))
    claimer = Claimer(queues.engine, ["default"], "worker")
    claimer.refresh()
    claimed: list[int] = []
    with pytest.MonkeyPatch.context() as patch:
        # What one claim brings starts tenant by tenant in turn, however large the claim is.
        patch.setattr("dueline.worker.claimer.interleaved", lambda taken, _lanes: taken)
        while len(claimed) < limit and (taken := claimer.claim(limit - len(claimed), {})):
            claimed += [number_of(claimed_job.job) for claimed_job in taken]
    assert peeked == claimed
    assert len(peeked) == min(limit, sum((d if r is None else r) <= 3 for *_, d, r in jobs))


def test_peek_into_a_queue_of_the_dead_shows_them(queues: Queues) -> None:
    (job,) = put(queues, call(1))
    grave = job.lane._replace(queue="default!dead")
    queues.engine.store.settle([Drop(job)])
    queues.engine.store.add([job._replace(lane=grave, hop=1, state=State.DEAD, error="x")])
    assert numbers(queues.peek("default!dead", 5)) == [1]
    assert queues.engine.catalog.names() == ["default"]
