"""Ending a job where there is no transaction: outcome first.

Of the dead only where each step is a call: the stores here keep one row an id, so their dead
are carried in the one transaction that they have.
"""

import pytest

from dueline.core.attempt import Attempt, Done, Ended, FinalState, Outcome
from dueline.core.errors import NotFound, Unknown
from dueline.core.ids import Ids
from dueline.core.job import UNCLAIMED_TOKEN, Job, State
from dueline.core.store import Extend, Move, Store
from dueline.jobs.completion import (
    OUTCOME_LEASE_US,
    Finished,
    complete,
    decision_of,
    finish,
    finish_of,
    stored,
)
from dueline.jobs.decisions import Decision, settle
from dueline.jobs.history import attempt_of, attempts
from dueline.jobs.queue import Queues
from tests.harness.calls import LEASE_US, WIDTH_US, call, calls, claim_all, put, row_in
from tests.harness.clocks import NOW_US, HandClock
from tests.harness.failing_store import FailingStore, Fault

STEPS_MAX = 20


class Stepwise(FailingStore):
    """A store whose groups are not transactions: each step is a call, and may fail."""

    def __init__(self, store: Store, plan: dict[int, Fault] | None = None) -> None:
        super().__init__(store, plan or {})
        self.transactional = False


def attempt_at(job: Job, outcome: Outcome) -> Attempt:
    """Say what history keeps of the end."""
    ended = Ended(job, Done(b""), NOW_US, outcome.ended_us)
    return attempt_of(ended, outcome=outcome.state, error=outcome.error)


def end_of(queues: Queues, job: Job, state: FinalState, *, ended_us: int = NOW_US) -> Finished:
    """Gather an end of a claimed job."""
    outcome = Outcome(state, ended_us, value="7" if state == "done" else "")
    settings = queues.engine.catalog.settings("default")
    return Finished(job, finish_of(job, outcome, attempt_at(job, outcome), settings))


def assert_ended(queues: Queues, job: Job, state: FinalState) -> None:
    """Check that a job has ended so, with each effect once."""
    assert queues.find(job.id).status == state
    assert list(queues.engine.jobs_of("default")) == []
    assert len(list(queues.engine.jobs_of("default!dead"))) == (state == "dead")
    assert [attempt.outcome for attempt in attempts(queues.engine.store, "default", 1)] == [state]


@pytest.mark.parametrize("state", ["done", "dead", "cancelled"])
def test_an_end_has_all_its_effects_with_or_without_transactions(
    queues: Queues, state: FinalState
) -> None:
    stores = (
        [queues.engine.store]
        if state == "dead"
        else [queues.engine.store, Stepwise(queues.engine.store)]
    )
    for store in stores:
        put(queues, call(1))
        (job,) = claim_all(queues)
        assert finish(store, [end_of(queues, job, state)]) == [True]
        assert queues.find(job.id).status == state
        assert list(queues.engine.jobs_of("default")) == []
    assert len(list(attempts(queues.engine.store, "default", 1))) == len(stores)


@pytest.mark.slow
@pytest.mark.parametrize("state", ["done", "cancelled"])
@pytest.mark.parametrize("fault", Fault)
@pytest.mark.parametrize("step", range(1, 4))
def test_the_next_claimer_completes_an_end_that_died_at_any_step(
    queues: Queues, clock: HandClock, state: FinalState, fault: Fault, step: int
) -> None:
    # rule P5: the handler never runs again once the outcome is stored
    put(queues, call(1))
    (job,) = claim_all(queues)
    store = Stepwise(queues.engine.store, {step: fault})
    try:
        held = finish(store, [end_of(queues, job, state)])
    except Unknown:
        assert step == 1
    else:
        assert held == [True]  # decided, whatever became of its effects
        assert store.calls >= step > 1
    clock.advance(us=max(LEASE_US, OUTCOME_LEASE_US))
    for again in claim_all(queues, worker="next"):
        if not again.outcome:  # the first step did not happen: the job runs again
            assert (step, fault) == (1, Fault.BEFORE)
            finish(store, [end_of(queues, again, state)])
            continue
        complete(store, [stored(again)])
    assert_ended(queues, job, state)


def test_that_tries_every_step(queues: Queues) -> None:
    for state in ("done", "cancelled"):
        put(queues, call(1))
        (job,) = claim_all(queues)
        store = Stepwise(queues.engine.store)
        finish(store, [end_of(queues, job, state)])
        assert store.calls == 3


@pytest.mark.parametrize("after_us", [0, LEASE_US - OUTCOME_LEASE_US, LEASE_US - 1])
def test_an_outcome_that_is_stored_is_what_people_see(
    queues: Queues, clock: HandClock, after_us: int
) -> None:
    """Nobody else completes it before its lease has ended, which begins with the end."""
    put(queues, call(1))
    (job,) = claim_all(queues)
    ended_us = NOW_US + after_us
    store = Stepwise(queues.engine.store, {2: Fault.BEFORE})
    assert finish(store, [end_of(queues, job, "done", ended_us=ended_us)]) == [True]
    row = row_in(queues.engine.store, job.id)
    assert row.at_us == max(NOW_US + LEASE_US, ended_us + OUTCOME_LEASE_US)
    view = queues.find(job.id)
    assert (view.status, view.row) == ("done", None)
    assert view.outcome == Outcome("done", ended_us, value="7")


def test_a_dead_job_lies_at_the_time_of_its_death_as_its_last_attempt_left_it(
    queues: Queues,
) -> None:
    put(queues, call(1, tenant="acme", priority=3))
    (job,) = claim_all(queues)
    failed = job._replace(errors=4, crashes=2)
    ended_us = job.at_us + 3 * WIDTH_US
    finish(queues.engine.store, [end_of(queues, failed, "dead", ended_us=ended_us)])
    (dead,) = queues.engine.jobs_of("default!dead")
    assert dead.lane == job.lane._replace(queue="default!dead", bucket=ended_us // WIDTH_US)
    assert (dead.pos_us, dead.at_us, dead.state) == (ended_us, ended_us, State.DEAD)
    assert (dead.errors, dead.crashes, dead.alone, dead.outcome) == (4, 2, False, b"")
    assert (dead.fence, dead.claimed_us) == (job.fence, job.claimed_us)
    assert (dead.worker, dead.token) == ("", UNCLAIMED_TOKEN)
    assert (dead.id, dead.task, dead.body) == (job.id, job.task, job.body)
    assert dead.hop == job.hop + 1


def test_of_two_who_finish_a_job_one_does(queues: Queues, clock: HandClock) -> None:
    # invariant 2
    put(queues, call(1))
    (old,) = claim_all(queues)
    clock.advance(us=LEASE_US)
    (new,) = claim_all(queues, worker="other")
    store = Stepwise(queues.engine.store)
    assert finish(store, [end_of(queues, old, "dead")]) == [False]
    assert row_in(queues.engine.store, new.id) == new
    assert finish(store, [end_of(queues, new, "done")]) == [True]
    assert_ended(queues, new, "done")


def test_an_end_without_effects_is_one_verdict(queues: Queues) -> None:
    queues.engine.catalog.configure("default", keep_us=0, history="off")
    put(queues, call(1))
    (job,) = claim_all(queues)
    store = Stepwise(queues.engine.store)
    assert finish(store, [end_of(queues, job, "done")]) == [True]
    assert store.calls == 1
    with pytest.raises(NotFound):
        queues.find(job.id)


def test_other_verdicts_go_beside_the_ends(queues: Queues) -> None:
    put(queues, calls(0, 3))
    ends, moves, extends = claim_all(queues)
    token = Ids().token()
    move = Move(moves, NOW_US + 9, token, (NOW_US + 9) // WIDTH_US, errors=1, crashes=0)
    attempt = attempt_at(moves, Outcome("done", NOW_US))
    changes = [
        decision_of(end_of(queues, ends, "done")),
        Decision(move, attempt=(attempt, moves)),
        Decision(Extend(extends, NOW_US + 99, started=True)),
        Decision(Extend(ends._replace(token=token), NOW_US)),
    ]
    held = settle(Stepwise(queues.engine.store), changes)
    assert held == [True, True, True, False]
    assert row_in(queues.engine.store, moves.id).errors == 1
    assert row_in(queues.engine.store, extends.id).state == State.STARTED
    assert len(list(attempts(queues.engine.store, "default", 1))) == 2


class Unsure(Stepwise):
    """Does not know whether its last step happened."""

    def together(self, groups):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
        del groups
        raise Unknown("The jobs and rows of a group may or may not be stored.")


def test_a_row_is_not_dropped_while_an_effect_is_unsure(queues: Queues, clock: HandClock) -> None:
    put(queues, call(1))
    (job,) = claim_all(queues)
    assert finish(Unsure(queues.engine.store), [end_of(queues, job, "done")]) == [True]
    assert row_in(queues.engine.store, job.id).outcome
    clock.advance(us=max(LEASE_US, OUTCOME_LEASE_US))
    (again,) = claim_all(queues)
    complete(Stepwise(queues.engine.store), [stored(again)])
    assert_ended(queues, job, "done")
