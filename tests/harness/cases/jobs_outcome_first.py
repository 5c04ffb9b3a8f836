"""A job has one end, wherever its worker is stopped."""

from tests.harness.job_runs import (
    LIVES,
    Life,
    set_stage,
    stop_everywhere,
)
from tests.harness.lives import Stage


def stage_of(life: Life, *stops: int) -> Stage:
    """Set a stage with one job on it."""
    return set_stage(Stage(life.act, retry=life.retry, settings=life.settings), *stops)


def a_job_has_one_end_wherever_its_worker_is_stopped(name: str) -> None:
    assert stop_everywhere(LIVES[name], stage_of) > 0
