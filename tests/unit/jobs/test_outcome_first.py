"""A job has one end, wherever its worker is stopped (R13).

Each life is led once for every step of it: the worker is stopped right before that step, for
good, and others go on when its leases are over (rule P5).
"""

import pytest

from tests.harness.job_runs import (
    LIVES,
    STEPS_MAX,
    Life,
    check_calls,
    check_end,
    lead,
    set_stage,
    states_of,
    stop_everywhere,
)
from tests.harness.lives import Stage
from tests.harness.marks import long_but


def stage_of(life: Life, *stops: int) -> Stage:
    """Set a stage with one job on it."""
    return set_stage(Stage(life.act, retry=life.retry, settings=life.settings), *stops)


READS = {"marks", "pointers", "page", "some", "places", "read", "partitions", "mark_of", "tail"}
FEW = ("done", "dead without history", "killed with its child")
"""The others take the same steps more often."""

pytestmark = pytest.mark.no_cover  # long, and what it runs is measured by others


@pytest.mark.long
@pytest.mark.parametrize("name", long_but(LIVES, *FEW, "cancelled by an operator"))
def test_a_job_has_one_end_wherever_its_worker_is_stopped(name: str) -> None:
    assert stop_everywhere(LIVES[name], stage_of) > 0


@pytest.mark.long
@pytest.mark.parametrize("name", ["done", "dead", "cancelled by an operator"])
def test_a_job_has_one_end_wherever_two_are_stopped(name: str) -> None:
    life = LIVES[name]
    for number in telling(lead_stopped(life)):
        for other in telling(lead_stopped(life, number)):
            if other > number:
                lead_stopped(life, number, other)


def lead_stopped(life: Life, *stops: int) -> Stage:
    """Lead a life whose clients are stopped before some steps."""
    stage = stage_of(life, *stops)
    lead(stage, life)
    check_end(stage, life)
    check_calls(stage)
    assert stage.calls <= life.calls + len(stops)
    return stage


def telling(stage: Stage) -> list[int]:
    """List the steps before which a stop leaves something else than before the step ahead of it.

    Who is stopped between two reads leaves what it does before the first one, or, if a handler is
    called between them, before the next write.
    """
    is_read = [name in READS for name in stage.names]
    assert 0 < sum(is_read) < len(is_read) < STEPS_MAX
    pairs = zip([False, *is_read], is_read, strict=False)
    return [number for number, both in enumerate(pairs, 1) if both != (True, True)]


@pytest.mark.long
@pytest.mark.parametrize("name", long_but(LIVES, *FEW))
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
