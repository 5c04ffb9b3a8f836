"""A job that is decided and was not seen through."""

from contextlib import suppress

import pytest

from dueline.core.attempt import FinalState
from dueline.core.errors import Conflict
from tests.harness.calls import claim_all, row_of
from tests.harness.job_races import JOB, check_one_end, check_rerun, finish_as, stage_of
from tests.harness.lives import AFTER_LEASES_US, Stage, Stopped


def decided(state: FinalState) -> Stage:
    """Set a stage whose job has an outcome that nobody saw through."""
    stage, queues, _ = stage_of()
    (job,) = claim_all(queues)
    stage.stop_at = frozenset({stage.steps + 2})
    with suppress(Stopped):
        finish_as(queues, job, state, "first")
    stage.stop_at = frozenset()
    (row,) = stage.rows()
    assert row.outcome
    return stage


def test_a_job_that_is_decided_shows_its_end_and_cannot_be_cancelled() -> None:
    stage = decided("done")
    queues = stage.queues()
    assert queues.find(JOB).status == "done"
    with pytest.raises(Conflict, match="is done"):
        queues.cancel(JOB)
    with pytest.raises(Conflict, match="is done"):
        queues.retry(JOB)
    assert list(queues.peek("default", 10)) == []
    check_one_end(stage)


def test_a_dead_job_that_nobody_buried_can_be_run_again() -> None:
    stage = decided("dead")
    assert stage.queues().find(JOB).status == "dead"
    stage.queues().retry(JOB)
    check_rerun(stage)


def test_running_rows_again_leaves_an_outcome_alone() -> None:
    stage = decided("done")
    assert stage.queues().retry_all(stage.rows()) == 0
    assert check_one_end(stage).value == '"first"'


def test_what_is_decided_is_not_called_lost_when_its_effects_fail() -> None:
    stage, queues, _ = stage_of()
    (job,) = claim_all(queues)
    stage.failing = {"commit": 1}
    assert finish_as(queues, job, "done", "first")
    assert queues.find(JOB).status == "done"
    assert check_one_end(stage).value == '"first"'


def test_what_a_claim_brings_beside_an_outcome_is_run_though_its_effects_fail() -> None:
    stage = decided("done")
    stage.queues().enqueue_again([row_of(2)])
    stage.clock.advance(us=AFTER_LEASES_US)
    stage.failing = {"commit": 1}
    stage.work()
    assert stage.calls == 1
    assert stage.rows() != []  # the outcome, whose lease ends
    stage.clock.advance(us=AFTER_LEASES_US)
    stage.work()
    assert (stage.calls, stage.rows()) == (1, [])
