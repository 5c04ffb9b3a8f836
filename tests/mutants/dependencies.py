"""Rules of jobs that wait for others, and of workflows with unique keys, broken."""

import pytest

from dueline.core.engine import Engine
from dueline.core.job import Job, JobId, State
from dueline.jobs import dependencies, dependents
from dueline.jobs.dependencies import _Known
from dueline.jobs.unique import UniqueJobs
from dueline.worker import workflow_steps

Patch = pytest.MonkeyPatch


def a_claimed_job_that_awaits_others_runs(patch: Patch) -> None:
    patch.setattr(workflow_steps, "awaited_by", lambda _job: None)


def a_dead_job_has_ended(patch: Patch) -> None:
    judge = _Known.job

    def judge_dead(self: _Known, job_id: JobId) -> object:
        row = self.rows.get(job_id)
        return None if row is not None and row.state == State.DEAD else judge(self, job_id)

    patch.setattr(_Known, "job", judge_dead)


def what_is_awaited_is_not_marked(patch: Patch) -> None:
    def leave(_engine: Engine, _row: Job | None) -> None:
        pass

    patch.setattr(dependencies, "_mark", leave)


def the_end_of_a_marked_job_is_not_recorded(patch: Patch) -> None:
    patch.setattr(dependents, "record", lambda _job, _outcome: [])


def a_job_that_waits_never_checks(patch: Patch) -> None:
    for name in ("CHECK_US", "CHECK_US_MAX"):
        patch.setattr(dependencies, name, 2**50)


def the_key_of_a_workflow_waits_for_its_last_step(patch: Patch) -> None:
    patch.setattr(UniqueJobs, "_is_over", lambda _self, _row: False)
