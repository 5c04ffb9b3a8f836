"""Rules of unknown tasks, broken."""

import pytest

from dueline.core.lane import task_of, with_task
from dueline.worker import paused_jobs
from dueline.worker.served_lanes import ServedLanes

Patch = pytest.MonkeyPatch


def it_stays_where_it_is(patch: Patch) -> None:
    patch.setattr(paused_jobs, "_tenant_with_task", lambda job: job.lane.tenant)


def everybody_claims_from_the_lane_of_a_task(patch: Patch) -> None:
    patch.setattr(ServedLanes, "_is_unknown", lambda *_: False)


def nobody_claims_from_the_lane_of_a_task(patch: Patch) -> None:
    patch.setattr(ServedLanes, "_is_unknown", lambda _, lane: bool(task_of(lane)))


def the_lane_names_the_task_alone(patch: Patch) -> None:
    patch.setattr(paused_jobs, "with_task", lambda lane, task, _: with_task(lane, task, 0))
