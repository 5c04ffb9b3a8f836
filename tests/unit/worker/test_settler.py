"""Endings become verdicts and effects, together (C4)."""

import logging
import random
from collections.abc import Callable
from contextlib import suppress

import pytest

from dueline.core.attempt import (
    Attempt,
    Cancelled,
    Crashed,
    Done,
    Ended,
    Ending,
    Failed,
    GivenBack,
    Outcome,
    Snoozed,
)
from dueline.core.call_options import CallOptions, Rule
from dueline.core.clock import SECOND_US
from dueline.core.errors import Duplicate, NotFound, Unknown
from dueline.core.job import Job, State
from dueline.core.retry import Retry
from dueline.core.store import Extend
from dueline.jobs.explain import explain
from dueline.jobs.history import attempt_of, attempts
from dueline.jobs.queue import Queues
from dueline.worker.claimer import ClaimedJob
from dueline.worker.triage import EndedBeforeRun, triage
from tests.harness.calls import LEASE_US, WIDTH_US, call, calls, claim_all, put, row_in
from tests.harness.clocks import NOW_US, HandClock
from tests.harness.failing_store import FailingStore, Fault
from tests.harness.swaps import swap
from tests.harness.unique_jobs import keyed, keys_held
from tests.harness.worker_bench import Bench, settler_of

RUN_US = 250_000
FAILED = Failed("ValueError", "no", "Traceback …\nValueError: no", retry=True, retry_after_us=None)


def ended(job: Job, ending: Ending) -> Ended:
    """End an attempt of a claimed job now."""
    return Ended(job, ending, NOW_US + 5, NOW_US + RUN_US)


def told(queues: Queues) -> list[Attempt]:
    """Read the history."""
    return list(attempts(queues.engine.store, "default", 1))


def words(queues: Queues) -> list[str]:
    """Read what history calls the attempts."""
    return [attempt.outcome for attempt in told(queues)]


def claimed(queues: Queues, clock: HandClock) -> Job:
    """Claim a job that ran for a while."""
    put(queues, call(1))
    (job,) = claim_all(queues)
    clock.advance(us=RUN_US)
    return job


def over_of(queues: Queues, taken: ClaimedJob) -> list[EndedBeforeRun]:
    """Sort a job that is not run any more."""
    now_us = queues.engine.time.latest_us()
    return triage([taken], queues.engine.catalog.settings, now_us, lambda _: {}).over


# --- each ending -----------------------------------------------------------------------------


def test_a_retried_job_of_a_batch_keeps_its_unique_key(queues: Queues, clock: HandClock) -> None:
    """End two jobs and retry one with a unique key, all at once; call with the key again."""
    # C12
    keyed = call(3)._replace(opts=CallOptions(unique=Rule("order 7", "reject", 0)).to_bytes())
    put(queues, call(1), call(2), keyed)
    jobs = claim_all(queues)
    clock.advance(us=RUN_US)
    ends = [ended(job, FAILED if job.opts else Done(b"7")) for job in jobs]
    assert settler_of(queues, Retry(attempts=3)).settle(ends, []) == []
    with suppress(Duplicate):
        put(queues, keyed)
        raise AssertionError("the key of a job that is retried was released")
    assert sorted(words(queues)) == ["done", "done", "retried"]


def test_done_drops_the_row_and_keeps_result_and_history(queues: Queues, clock: HandClock) -> None:
    job = claimed(queues, clock)
    assert settler_of(queues).settle([ended(job, Done(b"7"))], []) == []
    assert list(queues.engine.jobs_of("default")) == []
    assert queues.find(job.id).outcome == Outcome("done", NOW_US + RUN_US, value="7")
    (attempt,) = told(queues)
    assert (attempt.outcome, attempt.error, attempt.fence) == ("done", "", 1)
    assert (attempt.started_us, attempt.ended_us) == (NOW_US + 5, NOW_US + RUN_US)


@pytest.mark.parametrize("ending", [FAILED, Snoozed(60 * SECOND_US)])
def test_a_job_that_expires_before_its_retry_ends_at_its_expiry(
    queues: Queues, clock: HandClock, caplog: pytest.LogCaptureFixture, ending: Ending
) -> None:
    # C15: what waits for it, such as a workflow, does not wait for the retry
    expires_us = NOW_US + 5 * SECOND_US
    put(queues, call(1)._replace(opts=CallOptions(expires_us=expires_us).to_bytes()))
    (job,) = claim_all(queues)
    clock.advance(1)
    settler = settler_of(queues, Retry.fixed(60))
    with caplog.at_level(logging.INFO, "dueline.worker"):
        settler.settle([ended(job, ending)._replace(ended_us=NOW_US + SECOND_US)], [])
    assert ", expires in 4.0 s" in caplog.text  # there is no retry to promise
    assert "again" not in caplog.text
    row = queues.find(job.id).row
    assert row is not None
    assert row.at_us == expires_us
    assert explain(queues, job.id).sentence.startswith("It expires at 2026-01-01T00:00:05Z (in 4s)")
    clock.advance(4)
    assert Bench(queues, clock).run() == []
    view = queues.find(job.id)
    assert (view.status, view.row) == ("expired", None)


def test_a_job_that_was_throttled_is_explained_as_such(queues: Queues, clock: HandClock) -> None:
    job = claimed(queues, clock)
    settler_of(queues).settle([ended(job, Snoozed(300 * SECOND_US, throttles=True))], [])
    explanation = explain(queues, job.id)
    assert explanation.reason == "put back"
    assert explanation.sentence.startswith("Its handler raised Throttled, which defers it until 20")


def test_cancelled_is_an_end_with_a_reason(queues: Queues, clock: HandClock) -> None:
    job = claimed(queues, clock)
    settler_of(queues).settle([ended(job, Cancelled("why"))], [])
    assert queues.find(job.id).outcome == Outcome("cancelled", NOW_US + RUN_US, error="why")
    assert words(queues) == ["cancelled"]


def test_a_last_failure_carries_the_job_to_the_dead(queues: Queues, clock: HandClock) -> None:
    # R3
    job = claimed(queues, clock)
    settler_of(queues, Retry(attempts=1)).settle([ended(job, FAILED)], [])
    row = row_in(queues.engine.store, job.id)
    assert (row.lane.queue, row.state, row.error[:15]) == ("default!dead", 3, "ValueError: no\n")
    assert (row.errors, row.crashes, row.at_us) == (1, 0, NOW_US + RUN_US)
    assert [(attempt.outcome, attempt.error) for attempt in told(queues)] == [
        ("dead", "ValueError: no")
    ]


def test_a_last_crash_counts_as_one_too(queues: Queues, clock: HandClock) -> None:
    # R4
    job = claimed(queues, clock)._replace(crashes=2)
    settler_of(queues).settle([ended(job, Crashed("signal 9"))], [])
    row = row_in(queues.engine.store, job.id)
    assert (row.state, row.errors, row.crashes) == (State.DEAD, 0, 3)


@pytest.mark.parametrize(
    ("ending", "at_us", "word", "errors", "crashes", "alone"),
    [
        (FAILED._replace(retry_after_us=9), NOW_US + RUN_US + 9, "retried", 1, 0, False),
        (Snoozed(9), NOW_US + RUN_US + 9, "snoozed", 0, 0, False),
        (GivenBack(), NOW_US, "given_back", 0, 0, False),
        (GivenBack(9), NOW_US + RUN_US + 9, "given_back", 0, 0, False),
        (Crashed("signal 9"), NOW_US + RUN_US, "crashed", 0, 1, True),
    ],
)
def test_what_goes_on_moves_the_row_and_frees_it(
    queues: Queues,
    clock: HandClock,
    *,
    ending: Ending,
    at_us: int,
    word: str,
    errors: int,
    crashes: int,
    alone: bool,
) -> None:
    # every change to a job moves its `at`, or deletes the row
    job = claimed(queues, clock)
    assert settler_of(queues).settle([ended(job, ending)], []) == []
    row = row_in(queues.engine.store, job.id)
    assert (row.at_us, row.errors, row.crashes, row.alone) == (at_us, errors, crashes, alone)
    assert (row.state, row.fence) == (State.WAITING, 1)
    assert row.token != job.token
    assert words(queues) == [word]
    clock.advance(1)
    assert len(claim_all(queues)) == 1


def test_a_retry_waits_within_its_tasks_policy(queues: Queues, clock: HandClock) -> None:
    # R2
    job = claimed(queues, clock)
    settler_of(queues, Retry(base=100, cap=100)).settle([ended(job, FAILED)], [])
    wait_us = row_in(queues.engine.store, job.id).at_us - (NOW_US + RUN_US)
    assert wait_us == round(random.Random(1).random() * 100 * SECOND_US)


def test_a_task_without_a_handler_has_the_default_policy(queues: Queues, clock: HandClock) -> None:
    job = claimed(queues, clock)._replace(errors=7)
    settler_of(queues).settle([ended(job, FAILED)], [])
    assert row_in(queues.engine.store, job.id).state == State.DEAD


def test_a_start_is_marked_and_lasts_for_a_lease(queues: Queues, clock: HandClock) -> None:
    job = claimed(queues, clock)
    assert settler_of(queues).settle([], [job]) == []
    row = row_in(queues.engine.store, job.id)
    assert (row.state, row.at_us) == (State.STARTED, NOW_US + RUN_US + LEASE_US)
    assert row.token == job.token
    assert words(queues) == []


def test_endings_and_starts_go_in_one_call(queues: Queues, clock: HandClock) -> None:
    # C5
    put(queues, calls(0, 40))
    jobs = claim_all(queues)
    kinds: list[Ending] = [Done(b"1"), FAILED, Snoozed(5), FAILED._replace(retry=False)]
    counting = FailingStore(queues.engine.store, {})
    swap(queues, store=counting)
    queues.engine.catalog.settings("default")
    ends = [ended(job, kinds[n % 4]) for n, job in enumerate(jobs[:30])]
    assert settler_of(queues).settle(ends, jobs[30:]) == []
    assert counting.calls == 1
    assert sorted(words(queues)) == ["dead"] * 7 + ["done"] * 8 + ["retried"] * 8 + ["snoozed"] * 7
    assert sum(row.state == State.STARTED for row in queues.engine.jobs_of("default")) == 10


@pytest.mark.parametrize("keep_us", [0, 9 * SECOND_US])
@pytest.mark.parametrize("is_lost", [False, True])
def test_what_is_written_as_one_leaves_what_each_would(
    queues: Queues, clock: HandClock, *, keep_us: int, is_lost: bool
) -> None:
    # C5, C10; more rows than go into one statement, and some that do not fill one
    queues.engine.catalog.configure("default", keep_us=keep_us)
    queues.engine.catalog.configure("other", history="off", keep_us=9 * SECOND_US)
    put(queues, calls(0, 60), calls(60, 65, queue="other"))
    jobs = [*claim_all(queues), *claim_all(queues, *queues.engine.lanes_of("other"))]
    done = [Ended(job, Done(b"%d" % n), NOW_US + n, NOW_US + n + 9) for n, job in enumerate(jobs)]
    rest = [done.pop(7)._replace(ending=FAILED), done.pop(8)._replace(ending=Cancelled("why"))]
    if is_lost:
        lost = done[3].job
        assert queues.engine.store.settle([queues.redrive(lost)]) == [True]
    jobs_lost = settler_of(queues).settle([rest[0], *done, rest[1]], [])
    assert jobs_lost == ([done[3].job] if is_lost else [])
    ended = [end for end in done if end.job not in jobs_lost]
    told = [attempt_of(end, outcome="done", error="") for end in ended]
    told = [attempt for attempt in told if attempt.queue == "default"]
    assert sorted(words(queues)) == ["cancelled", *["done"] * len(told), "retried"]
    recorded = list(attempts(queues.engine.store, "default", 1))
    assert len(recorded) == len(told) + 2
    assert all(attempt in recorded for attempt in told)
    assert list(attempts(queues.engine.store, "other", 1)) == []
    for end in ended:
        if keep_us or end.job.lane.queue == "other":
            value = str(jobs.index(end.job))
            assert queues.find(end.job.id).outcome == Outcome("done", end.ended_us, value=value)
    assert len(list(queues.engine.jobs_of("default"))) == 1 + is_lost
    assert list(queues.engine.jobs_of("other")) == []


# --- settings --------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", [Done(b"1"), FAILED, FAILED._replace(retry=False)])
def test_no_history_is_written_where_it_is_off(
    queues: Queues, clock: HandClock, ending: Ending
) -> None:
    queues.engine.catalog.configure("default", history="off")
    settler_of(queues).settle([ended(claimed(queues, clock), ending)], [])
    assert told(queues) == []


def test_no_result_is_kept_where_keep_is_nothing(queues: Queues, clock: HandClock) -> None:
    queues.engine.catalog.configure("default", keep_us=0)
    job = claimed(queues, clock)
    settler_of(queues).settle([ended(job, Done(b""))], [])
    with pytest.raises(NotFound):
        queues.find(job.id)
    assert words(queues) == ["done"]


# --- claims that were lost -------------------------------------------------------------------


def taken_over(queues: Queues, clock: HandClock) -> tuple[Job, Job]:
    """Let a claim run out and another worker take the job; returns both claims."""
    put(queues, call(1))
    (old,) = claim_all(queues)
    clock.advance(us=LEASE_US)
    (new,) = claim_all(queues, worker="other")
    return old, new


@pytest.mark.parametrize(
    "ending",
    [Done(b"1"), FAILED, FAILED._replace(retry=False), Snoozed(1), Cancelled(""), Crashed("x")],
)
def test_a_lost_claim_records_only_that_it_was_refused(
    queues: Queues, clock: HandClock, caplog: pytest.LogCaptureFixture, ending: Ending
) -> None:
    # C7, V2, invariant 2
    old, new = taken_over(queues, clock)
    with caplog.at_level(logging.WARNING, "dueline.worker"):
        assert settler_of(queues).settle([ended(old, ending)], []) == [old]
    assert row_in(queues.engine.store, old.id) == new
    assert told(queues) == []
    (refused,) = attempts(queues.engine.store, "default", 1, everything=True)
    assert (refused.outcome, refused.fence, refused.worker) == ("refused", old.fence, "")
    assert "lost its claim after 250.0 ms; its result was discarded" in caplog.text


@pytest.mark.parametrize(
    ("level", "count", "lines"),
    [("INFO", 20, 20), ("INFO", 30, 1), ("DEBUG", 30, 30), ("WARNING", 30, 0)],
)
def test_many_that_are_done_are_one_line(
    queues: Queues, caplog: pytest.LogCaptureFixture, level: str, count: int, lines: int
) -> None:
    put(queues, calls(0, count))
    done = [ended(job, Done(b"1")) for job in claim_all(queues)]
    with caplog.at_level(level, "dueline.worker"):
        settler_of(queues).settle(done, [])
    assert len(caplog.messages) == lines
    if lines == 1:
        assert caplog.messages == ["jobs done: 30 (tests.task 30)"]


def test_of_many_only_the_lost_are_named(queues: Queues, clock: HandClock) -> None:
    # C5: partial failure names the ids
    old, _ = taken_over(queues, clock)
    put(queues, calls(2, 6))
    jobs = claim_all(queues)
    ends = [ended(job, Done(b"1")) for job in (jobs[0], old, jobs[1])]
    assert settler_of(queues).settle(ends, [jobs[2], old]) == [old, old]
    assert settler_of(queues).extend([jobs[2], old, jobs[3]], set()).lost == [old]
    assert words(queues) == ["done", "done"]


def test_a_beat_extends_claims_and_marks_those_that_run(queues: Queues, clock: HandClock) -> None:
    # C6
    put(queues, calls(1, 3))
    jobs = claim_all(queues)
    clock.advance(us=LEASE_US // 3)
    extended = settler_of(queues).extend(jobs, {jobs[1].claim()})
    until_us = clock.wall_us() + LEASE_US
    assert extended == ({job.claim(): until_us for job in jobs}, [])
    rows = [row_in(queues.engine.store, job.id) for job in jobs]
    assert [row.at_us for row in rows] == [clock.wall_us() + LEASE_US] * 2
    assert [row.state for row in rows] == [State.CLAIMED, State.STARTED]


@pytest.mark.parametrize("ending", [Done(b"1"), FAILED, FAILED._replace(retry=False)])
@pytest.mark.parametrize("fault", Fault)
def test_a_verdict_and_its_effects_happen_together_or_not_at_all(
    queues: Queues, clock: HandClock, ending: Ending, fault: Fault
) -> None:
    # C10
    job = claimed(queues, clock)
    settler = settler_of(queues)
    good, failing = queues.engine.store, FailingStore(queues.engine.store, {1: fault})
    swap(queues, store=failing)
    with pytest.raises(Unknown):
        settler.settle([ended(job, ending)], [])
    swap(queues, store=good)
    happened = fault is Fault.AFTER
    assert (len(told(queues)) == 1) is happened
    assert (good.find([job.id])[0] == job) is not happened
    # the worker says it again; what happened already is refused and doubles nothing
    assert settler.settle([ended(job, ending)], []) == ([job] if happened else [])
    assert len(told(queues)) == 1


# --- what others left ------------------------------------------------------------------------


def died(queues: Queues, clock: HandClock, *, deaths: int = 1) -> ClaimedJob:
    """Let workers die in a job; returns the next claim of it."""
    put(queues, call(1))
    before = job = claim_all(queues, worker="dead:1:0")[0]
    for _ in range(deaths):
        queues.engine.store.settle([Extend(job, clock.wall_us() + LEASE_US, started=True)])
        before = row_in(queues.engine.store, job.id)
        clock.advance(us=LEASE_US)
        (job,) = claim_all(queues, worker="next:1:0")
    return ClaimedJob(job, before)


def test_the_attempt_of_a_dead_worker_is_told_once(queues: Queues, clock: HandClock) -> None:
    # R1, V2
    taken = died(queues, clock)
    for _ in range(2):
        settler_of(queues).record_crashes([taken, ClaimedJob(taken.job, None)])
    (attempt,) = told(queues)
    assert (attempt.outcome, attempt.worker, attempt.fence) == ("crashed", "dead:1:0", 1)
    assert attempt.ended_us == NOW_US + LEASE_US


def test_it_is_not_told_where_history_is_off(queues: Queues, clock: HandClock) -> None:
    queues.engine.catalog.configure("default", history="off")
    settler_of(queues).record_crashes([died(queues, clock)])
    assert told(queues) == []


def test_poison_is_carried_to_the_dead_and_told(
    queues: Queues, clock: HandClock, caplog: pytest.LogCaptureFixture
) -> None:
    # R4
    taken = died(queues, clock, deaths=3)
    settler_of(queues).end(over_of(queues, taken))
    row = row_in(queues.engine.store, taken.job.id)
    assert (row.state, row.crashes, row.lane.queue) == (State.DEAD, 3, "default!dead")
    assert row.error.startswith("Poison: 3 workers died on it.")
    assert row.lane.bucket == clock.wall_us() // WIDTH_US
    assert [(attempt.outcome, attempt.fence) for attempt in told(queues)] == [("dead", 3)]
    assert f"job={taken.job.id.hex()} task=tests.task dead: Poison" in caplog.text
    settler_of(queues).end([])


# --- the log ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ending", "level", "text"),
    [
        (Done(b"1"), "INFO", "attempt=1 done after 250.0 ms"),
        (Snoozed(3 * SECOND_US), "INFO", "snoozed, again in 3.0 s"),
        (GivenBack(), "INFO", "given_back, again in 0.0 s"),
        (FAILED, "WARNING", "ValueError: no"),
        (FAILED._replace(retry=False), "ERROR", "dead after 250.0 ms\n    Traceback …"),
        (Crashed("signal 9"), "WARNING", "crashed, again in 0.0 s: signal 9"),
        (Cancelled("why"), "WARNING", "cancelled after 250.0 ms: why"),
    ],
)
def test_an_ending_is_one_record(
    queues: Queues,
    clock: HandClock,
    caplog: pytest.LogCaptureFixture,
    *,
    ending: Ending,
    level: str,
    text: str,
) -> None:
    job = claimed(queues, clock)
    end = Ended(job, ending, NOW_US, NOW_US + RUN_US)
    with caplog.at_level(logging.INFO, "dueline.worker"):
        settler_of(queues).settle([end], [])
    (record,) = caplog.records
    assert record.levelname == level
    assert record.getMessage().startswith(f"job={job.id.hex()} task=tests.task attempt=1 ")
    assert text in record.getMessage()


def test_good_news_is_not_logged_unless_asked_for(
    queues: Queues, clock: HandClock, caplog: pytest.LogCaptureFixture
) -> None:
    make: Callable[[], Job] = lambda: claimed(queues, clock)  # noqa: E731
    with caplog.at_level(logging.WARNING, "dueline.worker"):
        settler_of(queues).settle([ended(make(), Done(b"1"))], [])
    assert caplog.records == []


def test_the_keys_of_jobs_that_end_together_are_free(queues: Queues, clock: HandClock) -> None:
    """A key that is left behind takes space for ever, and each later call must look whose it is."""
    put(queues, *(keyed(number, key=f"k{number}") for number in (1, 2)))
    assert keys_held(queues, "k1")
    Bench(queues, clock).run()
    assert not keys_held(queues, "k1")
    assert not keys_held(queues, "k2")
