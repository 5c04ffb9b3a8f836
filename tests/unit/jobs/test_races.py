"""Two who want to end, change or add the same job."""

from contextlib import suppress

import pytest

from dueline.core.attempt import FinalState
from dueline.core.errors import Conflict
from dueline.jobs.completion import complete, stored
from dueline.jobs.queue import Queues
from tests.harness.calls import claim_all
from tests.harness.cases import jobs_races as cases
from tests.harness.cases.jobs_races import bury_one, check_added, rows_in_two_lanes, take_over
from tests.harness.interleaving import Turns, every_order
from tests.harness.job_races import (
    JOB,
    SWITCHES_MAX,
    check_one_end,
    check_rerun,
    finish_as,
    stage_of,
)
from tests.harness.job_runs import STEPS_MAX, text_of
from tests.harness.lives import AFTER_LEASES_US, Stage, Stopped
from tests.harness.marks import long_but

pytestmark = pytest.mark.no_cover  # long, and what it runs is measured by others


# --- two who end it --------------------------------------------------------------------------


@pytest.mark.long
def test_a_worker_and_an_operator_with_the_same_token_make_one_end() -> None:
    ends = set()

    def lead(turns: Turns) -> None:
        stage, one, two = stage_of()
        (job,) = claim_all(one)
        stage.clock.advance(us=AFTER_LEASES_US)
        stage.turns = turns
        held: list[str] = []

        def cancel() -> None:
            with suppress(Conflict):
                two.cancel(JOB)
                held.append("cancelled")

        def end() -> None:
            if finish_as(one, job, "done", "worker"):
                held.append("done")

        turns.run([end, cancel])
        assert [check_one_end(stage).state] == held
        ends.update(held)

    assert every_order(lead, switches_max=SWITCHES_MAX + 1) > 100
    assert ends == {"done", "cancelled"}


@pytest.mark.long
@pytest.mark.parametrize("state", long_but(["done", "dead"], "done"))
def test_a_late_worker_and_the_next_claimer_make_one_end(state: FinalState) -> None:
    cases.a_late_worker_and_the_next_claimer_make_one_end(state)


@pytest.mark.long
@pytest.mark.parametrize("state", long_but(["done", "dead"], "done"))
def test_a_finisher_and_who_takes_its_outcome_over_repeat_the_same(state: FinalState) -> None:
    """The lease on the outcome ends while its finisher is on the way."""

    def lead(turns: Turns) -> None:
        stage, one, two = stage_of()
        (job,) = claim_all(one)
        stage.stop_at = frozenset({stage.steps + 2})  # right after the outcome
        with suppress(Stopped):
            finish_as(one, job, state, "first")
        stage.stop_at = frozenset()
        (row,) = stage.rows()
        assert row.outcome
        stage.clock.advance(us=AFTER_LEASES_US)
        stage.turns = turns
        turns.run(
            [
                lambda: complete(one.engine.store, [stored(row)]),
                lambda: take_over(two, state, "never"),
            ]
        )
        end = check_one_end(stage)
        assert (end.value or end.error).strip('"') == "first"

    assert every_order(lead, switches_max=SWITCHES_MAX) > 20


# --- the dead, run again ---------------------------------------------------------------------


def test_a_dead_job_is_one_job_wherever_its_redrive_is_stopped() -> None:
    cases.a_dead_job_is_one_job_wherever_its_redrive_is_stopped()


def test_what_a_redrive_left_behind_is_no_job_once_it_has_ended() -> None:
    for number in range(1, STEPS_MAX):
        stage = bury_one()
        stage.stop_at = frozenset({number})
        with suppress(Stopped):
            stage.queues().retry(JOB)
        is_through = stage.steps < number
        stage.stop_at = frozenset()
        stage.work()
        queues = stage.queues()
        row = stage.queues().engine.store.find([JOB])[0]
        if stage.calls:
            assert row is None
            assert queues.find(JOB).status == "done"
        else:
            assert row is not None
            assert queues.find(JOB).status in ("dead", "ready")
        if is_through:
            assert stage.calls == 1
            return
    raise AssertionError("the redrive never runs through")


@pytest.mark.long
def test_two_redrives_of_a_dead_job_make_one_job() -> None:
    def lead(turns: Turns) -> None:
        stage = bury_one()
        both = [stage.queues(), stage.queues()]
        for queues in both:
            queues.engine.time.latest_us()
        stage.turns = turns

        def retry(queues: Queues) -> None:
            with suppress(Conflict):
                queues.retry(JOB)

        turns.run([lambda: retry(both[0]), lambda: retry(both[1])])
        check_rerun(stage)

    assert every_order(lead, switches_max=2) > 50


# --- adding ----------------------------------------------------------------------------------


def test_jobs_are_there_once_wherever_adding_them_is_stopped() -> None:
    cases.jobs_are_there_once_wherever_adding_them_is_stopped()


@pytest.mark.long
def test_two_who_add_the_same_jobs_add_them_once() -> None:
    rows = rows_in_two_lanes()

    def lead(turns: Turns) -> None:
        stage = Stage(text_of, turns=turns)
        both = [stage.queues(), stage.queues()]
        turns.run([lambda: both[0].enqueue_again(rows), lambda: both[1].enqueue_again(rows)])
        check_added(stage, rows)

    assert every_order(lead, switches_max=2) > 50


def test_a_job_that_was_done_is_not_run_again_when_it_is_added_again() -> None:
    cases.a_job_that_was_done_is_not_run_again_when_it_is_added_again()


@pytest.mark.long
def test_a_late_job_is_listed_despite_concurrent_cleanup() -> None:
    cases.a_late_job_is_listed_whatever_a_sweep_does_meanwhile()


def test_a_sweep_sees_what_its_claimer_does_not_remember() -> None:
    cases.a_sweep_sees_what_its_claimer_does_not_remember()
