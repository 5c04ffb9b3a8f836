"""Two who want to end, change or add the same job."""

from collections.abc import Callable, Sequence
from contextlib import suppress

import pytest

from dueline.core.attempt import FinalState
from dueline.core.clock import DAY_US
from dueline.core.errors import Conflict
from dueline.core.job import Job
from dueline.core.lane import Lane
from dueline.jobs.completion import complete, stored
from dueline.jobs.queue import Queues
from tests.harness.calls import claim_all, row_of
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
from tests.harness.lives import AFTER_LEASES_US, WIDTH_US, Stage, Stopped
from tests.harness.marks import long_but


def take_over(queues: Queues, state: FinalState, name: str) -> None:
    """Do what the next claimer does: repeat the effects of an outcome, or end the job itself."""
    for job in claim_all(queues, Lane("default", 0, row_of().lane.bucket, 0, "")):
        if job.outcome:
            complete(queues.engine.store, [stored(job)])
        else:
            finish_as(queues, job, state, name)


def bury_one() -> Stage:
    """Set a stage with one dead job, whose next call succeeds."""
    stage, queues, _ = stage_of()
    (job,) = claim_all(queues)
    assert finish_as(queues, job, "dead", "at first")
    stage.ends.clear()
    stage.steps = 0
    return stage


def rows_in_two_lanes() -> Sequence[Job]:
    """Make four rows, in two lanes."""
    rows = [row_of(number) for number in range(1, 5)]
    return [
        row._replace(lane=row.lane._replace(priority=number % 2)) for number, row in enumerate(rows)
    ]


def check_added(stage: Stage, rows: Sequence[Job]) -> None:
    """Check that each row is there once, and that a worker who knows nothing finds it."""
    stage.turns = None
    assert sorted(stage.rows()) == sorted(rows)
    store = stage.queues().engine.store
    page = store.lanes("default", 0, until_bucket=-1, after=None, limit=100)
    listed = {
        pointer.lane
        for pointer in stage.cluster.pointers.get(("default", 0), ())  # type: ignore[call-overload]
        if pointer.listing > page.marks.swept
    }
    assert listed >= {row.lane for row in rows}
    stage.work_to_the_end()
    assert stage.calls == len(rows)


def sweep_twice(stage: Stage) -> None:
    """Close the bucket of the jobs, and unlist what is empty in it."""
    store = stage.queues().engine.store
    for days in (2, 3):
        now_us = stage.clock.wall_us() + days * DAY_US
        store.sweep("default", 0, now_us=now_us, width_us=WIDTH_US)


def added_beside(sweeper: Callable[[Stage], None]) -> Callable[[Turns], None]:
    """Let a late producer meet a sweep, in an order of their steps."""
    rows = [row_of(1)]

    def lead(turns: Turns) -> None:
        stage = Stage(text_of, turns=turns)
        queues = stage.queues()
        turns.run([lambda: queues.enqueue_again(rows), lambda: sweeper(stage)])
        check_added(stage, rows)

    return lead


pytestmark = pytest.mark.no_cover  # long, and what it runs is measured by others


# --- two who end it --------------------------------------------------------------------------


@pytest.mark.long
def test_a_worker_and_an_operator_with_the_same_token_make_one_end() -> None:
    ends = set()

    def lead(turns: Turns) -> None:
        stage, first, second = stage_of()
        (job,) = claim_all(first)
        stage.clock.advance(us=AFTER_LEASES_US)
        stage.turns = turns
        held: list[str] = []

        def cancel() -> None:
            with suppress(Conflict):
                second.cancel(JOB)
                held.append("cancelled")

        def end() -> None:
            if finish_as(first, job, "done", "worker"):
                held.append("done")

        turns.run([end, cancel])
        assert [check_one_end(stage).state] == held
        ends.update(held)

    assert every_order(lead, switches_max=SWITCHES_MAX + 1) > 100
    assert ends == {"done", "cancelled"}


@pytest.mark.long
@pytest.mark.parametrize("state", long_but(["done", "dead"], "done"))
def test_a_late_worker_and_the_next_claimer_make_one_end(state: FinalState) -> None:
    ends = set()

    def lead(turns: Turns) -> None:
        stage, first, second = stage_of()
        (job,) = claim_all(first)
        stage.clock.advance(us=AFTER_LEASES_US)
        stage.turns = turns
        turns.run(
            [lambda: finish_as(first, job, state, "late"), lambda: take_over(second, state, "new")]
        )
        end = check_one_end(stage)
        ends.add(end.value or end.error)

    assert every_order(lead, switches_max=SWITCHES_MAX) > 50
    assert {end.strip('"') for end in ends} == {"late", "new"}


@pytest.mark.long
@pytest.mark.parametrize("state", long_but(["done", "dead"], "done"))
def test_a_finisher_and_who_takes_its_outcome_over_repeat_the_same(state: FinalState) -> None:
    """The lease on the outcome ends while its finisher is on the way."""

    def lead(turns: Turns) -> None:
        stage, first, second = stage_of()
        (job,) = claim_all(first)
        stage.stop_at = frozenset({stage.steps + 2})  # right after the outcome
        with suppress(Stopped):
            finish_as(first, job, state, "first")
        stage.stop_at = frozenset()
        (row,) = stage.rows()
        assert row.outcome
        stage.clock.advance(us=AFTER_LEASES_US)
        stage.turns = turns
        turns.run(
            [
                lambda: complete(first.engine.store, [stored(row)]),
                lambda: take_over(second, state, "never"),
            ]
        )
        end = check_one_end(stage)
        assert (end.value or end.error).strip('"') == "first"

    assert every_order(lead, switches_max=SWITCHES_MAX) > 20


# --- the dead, run again ---------------------------------------------------------------------


def test_a_dead_job_is_one_job_wherever_its_redrive_is_stopped() -> None:
    for number in range(1, STEPS_MAX):
        stage = bury_one()
        stage.stop_at = frozenset({number})
        with suppress(Stopped):
            stage.queues().retry(JOB)
        is_through = stage.steps < number
        stage.stop_at = frozenset()
        check_rerun(stage)
        if is_through:
            assert number > 8
            return
    raise AssertionError("the redrive never runs through")


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
    rows = rows_in_two_lanes()
    for number in range(1, STEPS_MAX):
        stage = Stage(text_of, stop_at=frozenset({number}))
        with suppress(Stopped):
            stage.queues().enqueue_again(rows)
        is_through = stage.steps < number
        stage.stop_at = frozenset()
        stage.queues().enqueue_again(rows)  # what is sent again has the same keys
        check_added(stage, rows)
        if is_through:
            assert number > 8
            return
    raise AssertionError("adding never runs through")


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
    for number in range(1, STEPS_MAX):
        stage = Stage(text_of, stop_at=frozenset({number}))
        stage.meanwhile = stage.others_go_on
        stage.queues().enqueue_again([row_of(1)])
        is_through = stage.steps < number
        stage.stop_at = frozenset()
        stage.queues().enqueue_again([row_of(1)])
        stage.work_to_the_end()
        assert (stage.calls, stage.rows()) == (1, [])
        if is_through:
            return
    raise AssertionError("adding never runs through")


@pytest.mark.long
def test_a_late_job_is_listed_despite_concurrent_cleanup() -> None:
    assert every_order(added_beside(sweep_twice), switches_max=SWITCHES_MAX) > 100


def test_a_sweep_sees_what_its_claimer_does_not_remember() -> None:
    stage, first, second = stage_of()
    stage.clock.advance(10)
    for job in claim_all(first):
        assert finish_as(first, job, "done", "first")
    second.enqueue_again([row_of(2)])  # behind the other's cursor
    for days in (2, 3):
        now_us = stage.clock.wall_us() + days * DAY_US
        first.engine.store.sweep("default", 0, now_us=now_us, width_us=WIDTH_US)
    check_added(stage, [row_of(2)])
