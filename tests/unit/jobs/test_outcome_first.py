"""A job has one end, wherever its worker is stopped.

Each life is led once for every step of it: the worker is stopped right before that step, for
good, and others go on when its leases are over (rule P5).
"""

import pytest

from tests.harness.cases import jobs_outcome_first as cases
from tests.harness.cases.jobs_outcome_first import stage_of
from tests.harness.job_runs import (
    LIVES,
    STEPS_MAX,
    check_calls,
    check_end,
    lead,
    states_of,
)

pytestmark = pytest.mark.no_cover  # long, and what it runs is measured by others


@pytest.mark.parametrize("name", LIVES)
def test_a_job_has_one_end_wherever_its_worker_is_stopped(name: str) -> None:
    cases.a_job_has_one_end_wherever_its_worker_is_stopped(name)


@pytest.mark.parametrize("name", ["done", "dead", "cancelled by an operator"])
def test_a_job_has_one_end_wherever_two_are_stopped(name: str) -> None:
    life = LIVES[name]
    for number in range(1, STEPS_MAX):
        for other in range(number + 1, STEPS_MAX):
            stage = stage_of(life, number, other)
            lead(stage, life)
            check_end(stage, life)
            check_calls(stage)
            assert stage.calls <= life.calls + 2
            if stage.steps < other:
                break
        if stage.steps < number:
            return
    raise AssertionError("the life never runs through")


@pytest.mark.parametrize("name", LIVES)
def test_a_worker_that_resumes_late_changes_no_end(name: str) -> None:
    """It is paused before one step; others see the job through, then it goes on."""
    life = LIVES[name]
    for number in range(1, STEPS_MAX):
        stage = stage_of(life, number)
        stage.meanwhile = stage.others_go_on
        lead(stage, life)
        check_end(stage, life)
        (end,) = stage.ends.values()
        assert end.state in states_of(life)
        assert stage.calls <= max(1, life.calls) + 1
        if stage.steps < number:
            check_calls(stage)
            return
    raise AssertionError("the life never runs through")
