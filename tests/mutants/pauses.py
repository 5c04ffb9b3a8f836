"""Rules of pauses, broken."""

import pytest

from dueline.core.call_options import read_options
from dueline.core.clock import DAY_US
from dueline.core.job import Job
from dueline.jobs import paused_tasks
from dueline.worker.paused_jobs import DeferredJobs

Patch = pytest.MonkeyPatch


def jobs_are_set_aside_for_ever(patch: Patch) -> None:
    patch.setattr(paused_tasks, "ASIDE_US", 10_000 * DAY_US)


def a_mark_holds_wherever_the_row_is(patch: Patch) -> None:
    def place(row: Job) -> int | None:
        mark = read_options(row.opts).aside
        return mark and mark[0]

    patch.setattr(paused_tasks, "place_before", place)


def who_knows_late_of_an_end_leaves_it_at_that(patch: Patch) -> None:
    patch.setattr(DeferredJobs, "requeue", lambda _: None)
