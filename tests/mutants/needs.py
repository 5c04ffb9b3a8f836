"""Rules of jobs that need something of their worker, broken."""

from collections.abc import Callable

import pytest

from dueline.core.lane import Lane
from dueline.worker import resources, served_lanes
from dueline.worker.resources import Resources
from dueline.worker.slots import Slots

Patch = pytest.MonkeyPatch


def a_worker_claims_what_it_cannot_run(patch: Patch) -> None:
    patch.setattr(served_lanes, "lacking", lambda _lane, _has: ())


def a_worker_claims_for_more_than_is_free(patch: Patch) -> None:
    patch.setattr(Resources, "room", lambda _self, _lane: 1000)


def what_held_jobs_use_does_not_count(patch: Patch) -> None:
    patch.setattr(Slots, "in_use", lambda _self: ())


def nothing_is_left_free_for_a_large_job(patch: Patch) -> None:
    def leave(_self: Resources, _now_us: int, _is_left_out: Callable[[Lane], bool]) -> None:
        pass

    patch.setattr(Resources, "_reserve", leave)


def a_large_job_holds_others_back_at_once(patch: Patch) -> None:
    patch.setattr(resources, "RESERVE_US", -(2**50))
