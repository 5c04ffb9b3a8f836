"""Rules of jobs that are paused one by one, broken."""

import pytest

from dueline.core.engine import Engine
from dueline.core.job import PAUSED_US, Job
from dueline.jobs import dependencies, job_pauses, paused_rows

Patch = pytest.MonkeyPatch


def a_release_moves_a_paused_job(patch: Patch) -> None:
    patch.setattr(dependencies, "is_paused", lambda _job: False)


def a_missed_release_is_never_noticed(patch: Patch) -> None:
    patch.setattr(paused_rows, "_may_be_released", lambda _row, _at_us: False)


def a_pause_ends_soon(patch: Patch) -> None:
    is_moved = paused_rows.is_moved

    def move(engine: Engine, row: Job, at_us: int, *, due_us: int | None = None) -> bool:
        return is_moved(engine, row, at_us % PAUSED_US, due_us=due_us)

    patch.setattr(job_pauses, "is_moved", move)
