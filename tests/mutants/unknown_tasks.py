"""Rules of unknown tasks, broken."""

import pytest

from dueline.coordination.worker_registry import KnownTasks
from dueline.core.lane import Lane, lane_tenant, read_key, task_of, with_task
from dueline.worker import paused_jobs, settlement_plan
from dueline.worker.served_lanes import ServedLanes

Patch = pytest.MonkeyPatch


def it_stays_where_it_is(patch: Patch) -> None:
    patch.setattr(paused_jobs, "_tenant_with_task", lambda job: job.lane.tenant)


def everybody_claims_from_the_lane_of_a_task(patch: Patch) -> None:
    patch.setattr(ServedLanes, "_is_foreign", lambda *_: False)


def nobody_claims_from_the_lane_of_a_task(patch: Patch) -> None:
    patch.setattr(ServedLanes, "_is_foreign", lambda _, lane: bool(task_of(lane)))


def the_lane_names_the_task_alone(patch: Patch) -> None:
    patch.setattr(paused_jobs, "with_task", lambda lane, task, _: with_task(lane, task, 0))


def everybody_claims_what_another_version_takes(patch: Patch) -> None:
    is_unknown = ServedLanes._is_foreign

    def is_known(served: ServedLanes, lane: Lane) -> bool:
        key = read_key(task_of(lane))._replace(refused=()).text
        return is_unknown(served, lane._replace(tenant=lane_tenant("", (), key)))

    patch.setattr(ServedLanes, "_is_foreign", is_known)


def nobody_claims_what_another_version_takes(patch: Patch) -> None:
    may_claim = KnownTasks.may_claim
    patch.setattr(
        KnownTasks,
        "may_claim",
        lambda known, key, now_us: not read_key(key).refused and may_claim(known, key, now_us),
    )


def a_misfit_stays_where_it_is(patch: Patch) -> None:
    patch.setattr(settlement_plan, "after_refusal", lambda lane, *_, **__: lane)
