"""Expiry, windows and changes of jobs that wait."""

import random
from datetime import timedelta

import pytest

from dueline.core.call_options import CallOptions, Mode, Rule, Unique, is_past, read_options
from dueline.core.clock import SECOND_US
from dueline.core.errors import BadInput, Conflict, StoreCorrupt
from dueline.core.ids import Ids
from dueline.core.job import Job, State
from dueline.core.lane import bucket_of
from dueline.core.store import Extend, Move
from dueline.core.validation import DUE_AHEAD_US_MAX
from dueline.jobs.counts import count
from dueline.jobs.explain import explain
from dueline.jobs.history_recorder import open_engine
from dueline.jobs.queue import EnqueueRequest, Queues
from tests.harness.calls import LEASE_US, WIDTH_US, call, calls, claim_all, number_of, put
from tests.harness.clocks import NOW_US, HandClock

MINUTE_US = 60 * SECOND_US


def row(queues: Queues, job: Job) -> Job:
    """Read a job's row."""
    stored = queues.find(job.id).row
    assert stored is not None
    return stored


# --- what is stored --------------------------------------------------------------------------


def test_no_options_take_no_bytes() -> None:
    assert CallOptions().to_bytes() == b""
    assert read_options(b"") == CallOptions()


@pytest.mark.parametrize(
    "options",
    [
        CallOptions(expires_us=7),
        CallOptions(unique=Rule("a", "replace", 3)),
        CallOptions(expires_us=1, unique=Rule("b")),
    ],
)
def test_options_are_read_as_they_were_written(options: CallOptions) -> None:
    assert read_options(options.to_bytes()) == options


def test_options_that_cannot_be_read_are_damage() -> None:
    with pytest.raises(StoreCorrupt):
        read_options(b"[")


@pytest.mark.parametrize("key", ["", "{", "{}", "{0}", "{a.b}", "{a[0]}", "{a!r}", "{a:>9}", 3])
def test_a_key_holds_names_alone(key: str) -> None:
    with pytest.raises(BadInput):
        Unique(key)


def test_a_key_of_the_last_call_is_held_for_no_period() -> None:
    with pytest.raises(BadInput, match="while its job waits"):
        Unique("a", within=5, mode="last")


@pytest.mark.parametrize("within", [0, -1, timedelta(days=9999)])
def test_a_period_is_longer_than_nothing(within: float) -> None:
    with pytest.raises(BadInput):
        Unique("a", within=within)


def test_a_mode_is_one_of_four() -> None:
    mode: Mode = "never"  # type: ignore[assignment]
    with pytest.raises(BadInput):
        Unique("a", mode=mode)


def test_a_key_is_filled_in_from_the_arguments() -> None:
    unique = Unique("{{x}}:{to}:{n}", within=2)
    assert unique.rule({"to": "ann", "n": 3, "other": 1}) == Rule("{x}:ann:3", "reject", 2_000_000)
    for value in ("\ud800", "a" * 513):
        with pytest.raises(BadInput):
            Unique("{to}").rule({"to": value})
    with pytest.raises(BadInput):
        Unique("{to}").rule({"to": ""})


# --- expiry ----------------------------------------------------------------------------------


def expiring(number: int, us: int) -> EnqueueRequest:
    """Make a call that expires so long from now."""
    return call(number)._replace(opts=CallOptions(expires_us=NOW_US + us).to_bytes())


def test_a_job_is_expired_from_its_expiry_on(queues: Queues, clock: HandClock) -> None:
    # C15
    (job,) = put(queues, expiring(1, MINUTE_US))
    clock.advance(us=MINUTE_US - 1)
    assert queues.find(job.id).status == "ready"
    assert count(queues.engine, "default", ()).expired == 0
    clock.advance(us=1)
    assert queues.find(job.id).status == "expired"
    counts = count(queues.engine, "default", ())
    assert (counts.ready, counts.expired) == (0, 1)
    explanation = explain(queues, job.id)
    assert explanation.reason == "expired"
    assert "2026-01-01T00:01:00Z" in explanation.sentence
    with pytest.raises(Conflict):
        queues.retry(job.id)
    with pytest.raises(Conflict):
        queues.change(job.id, priority=1)
    queues.cancel(job.id)


def test_a_job_that_runs_is_not_expired(queues: Queues, clock: HandClock) -> None:
    (job,) = put(queues, expiring(1, SECOND_US))
    claim_all(queues)
    clock.advance(us=2 * SECOND_US)
    assert queues.find(job.id).status == "running"


def test_a_call_that_could_never_run_is_refused(queues: Queues) -> None:
    for us in (0, -1):
        with pytest.raises(BadInput):
            queues.enqueue(expiring(1, us))
    late = expiring(1, MINUTE_US)._replace(window_us=MINUTE_US)
    with pytest.raises(BadInput):
        queues.enqueue(late)
    assert list(queues.engine.jobs_of("default")) == []


def test_damaged_options_hide_no_job(queues: Queues) -> None:
    (job,) = put(queues, call(1))
    assert not is_past(job, NOW_US)
    damaged = job._replace(id=queues.engine.ids.one(NOW_US), opts=b"[")
    queues.engine.store.add([damaged])
    assert queues.find(damaged.id).status == "ready"


# --- window ----------------------------------------------------------------------------------


def test_starts_are_spread_evenly_over_a_window(queues: Queues) -> None:
    # T7: 10,000 jobs, 30 slices of 10 s; chi-square with 29 degrees of freedom, p = 0.001
    ids = Ids(random.Random(9).randbytes)
    due_us = NOW_US + 9 * 3600 * SECOND_US
    spreading = Queues(
        open_engine(
            queues.engine.store,
            clock=queues.engine.catalog._clock,
            ids=ids,
            defaults=queues.engine.catalog._defaults,
        )
    )
    slices = [0] * 30
    for first in range(0, 10_000, 1000):
        request = calls(first, first + 1000)._replace(due_us=due_us, window_us=5 * MINUTE_US)
        for job in spreading.enqueue(request):
            assert job.due_us == due_us
            assert job.at_us == job.pos_us
            assert job.lane.bucket == bucket_of(job.pos_us, WIDTH_US)
            slices[(job.at_us - due_us) // (10 * SECOND_US)] += 1
    mean = 10_000 / 30
    assert sum((number - mean) ** 2 / mean for number in slices) < 58.3


def test_a_window_at_midnight_falls_into_two_buckets(queues: Queues) -> None:
    due_us = NOW_US + 86_400 * SECOND_US - MINUTE_US
    jobs = queues.enqueue(calls(0, 50)._replace(due_us=due_us, window_us=2 * MINUTE_US))
    assert len({job.lane.bucket for job in jobs}) == 2
    assert len(list(queues.engine.jobs_of("default"))) == 50


def test_a_window_has_bounds(queues: Queues) -> None:
    for window_us in (-1, DUE_AHEAD_US_MAX + 1):
        with pytest.raises(BadInput):
            queues.enqueue(call(1)._replace(window_us=window_us))


# --- changes ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("first_s", "then_s"), [(0, 60), (60, 0), (60, 3600), (60, 59)])
def test_a_waiting_job_is_rescheduled(queues: Queues, first_s: int, then_s: int) -> None:
    # C20
    due_us, then_us = NOW_US + first_s * SECOND_US, NOW_US + then_s * SECOND_US
    (job,) = put(queues, call(1, due_us=due_us))
    queues.reschedule(job.id, then_us)
    assert (row(queues, job).at_us, row(queues, job).due_us) == (then_us, then_us)


def test_a_job_that_runs_early_on_request_is_due_then(queues: Queues, clock: HandClock) -> None:
    first, second, late = put(
        queues, *(call(n, due_us=NOW_US + n * MINUTE_US) for n in (1, 2)), call(3)
    )
    clock.advance(1)
    queues.retry(first.id)
    assert queues.retry_all([row(queues, second), row(queues, late)]) == 2
    dues = {number_of(job): job.due_us for job in claim_all(queues)}
    assert dues == {1: clock.wall_us(), 2: clock.wall_us(), 3: NOW_US}


def test_a_rescheduled_job_is_claimed_at_its_new_time(queues: Queues, clock: HandClock) -> None:
    # C20
    put(queues, call(1, due_us=NOW_US + 3 * 86_400 * SECOND_US))
    (job,) = queues.engine.jobs_of("default")
    queues.reschedule(job.id, NOW_US + SECOND_US)
    assert claim_all(queues) == []
    clock.advance(1)
    assert [number_of(job) for job in claim_all(queues)] == [1]


def test_a_time_that_is_past_is_now(queues: Queues) -> None:
    (job,) = put(queues, call(1, due_us=NOW_US + MINUTE_US))
    queues.reschedule(job.id, 5)
    assert (row(queues, job).at_us, row(queues, job).due_us) == (NOW_US, NOW_US)


def test_a_time_lies_within_ten_years_and_before_the_expiry(queues: Queues) -> None:
    (job,) = put(queues, expiring(1, MINUTE_US))
    for at_us in (-1, NOW_US + DUE_AHEAD_US_MAX + 1, NOW_US + MINUTE_US):
        with pytest.raises(BadInput):
            queues.reschedule(job.id, at_us)
    with pytest.raises(BadInput):
        queues.change(job.id, priority=2**31)
    assert row(queues, job) == job


def test_a_waiting_job_gets_another_priority(queues: Queues) -> None:
    # C20
    jobs = put(queues, call(1), call(2), call(3, due_us=NOW_US + MINUTE_US))
    queues.change(jobs[1].id, priority=7)
    queues.change(jobs[2].id, priority=-7)
    assert [number_of(job) for job in queues.peek("default", 9)] == [2, 1]
    changed = row(queues, jobs[2])
    assert (changed.lane.priority, changed.at_us, changed.body) == (-7, jobs[2].at_us, b"[3]")
    queues.change(changed.id, priority=-7)
    assert row(queues, changed).lane == changed.lane


def test_a_job_keeps_what_is_known_of_its_failures(queues: Queues) -> None:
    put(queues, call(1))
    (job,) = claim_all(queues)
    at_us = NOW_US + MINUTE_US
    assert queues.engine.store.settle(
        [Move(job, at_us, queues.engine.ids.token(), 0, 3, 1, error="no")]
    )[0]
    queues.reschedule(job.id, NOW_US + 2 * MINUTE_US)
    stored = row(queues, job)
    assert (stored.errors, stored.crashes, stored.error, stored.state) == (
        3,
        1,
        "no",
        State.WAITING,
    )


@pytest.mark.parametrize("is_over", [False, True], ids=["running", "its lease is over"])
def test_a_claimed_job_is_not_changed(queues: Queues, clock: HandClock, *, is_over: bool) -> None:
    # C20
    put(queues, call(1))
    (job,) = claim_all(queues)
    if is_over:
        clock.advance(us=LEASE_US + 1)
    with pytest.raises(Conflict):
        queues.reschedule(job.id, NOW_US + MINUTE_US)
    with pytest.raises(Conflict):
        queues.change(job.id, priority=3)
    assert row(queues, job) == job


def test_a_job_that_ended_is_not_changed(queues: Queues) -> None:
    (job,) = put(queues, call(1))
    queues.cancel(job.id)
    with pytest.raises(Conflict, match="is cancelled and cannot be rescheduled"):
        queues.reschedule(job.id, NOW_US)


def test_a_started_job_that_is_delivered_at_most_once_is_not_retried(
    queues: Queues, clock: HandClock
) -> None:
    # C8
    queues.engine.catalog.configure("default", deliver="at_most_once")
    put(queues, call(1))
    (job,) = claim_all(queues)
    assert queues.engine.store.settle([Extend(job, job.at_us, started=True)])[0]
    clock.advance(us=LEASE_US + 1)
    with pytest.raises(Conflict):
        queues.retry(job.id)
    assert queues.retry_all([row(queues, job)]) == 0
