"""Rules of pauses, broken."""

import pytest

from dueline import aside
from dueline.clock import DAY_US
from dueline.job import Job
from dueline.options import read_options
from dueline.worker.steered import Steered

Patch = pytest.MonkeyPatch


def jobs_are_set_aside_for_ever(patch: Patch) -> None:
    patch.setattr(aside, "ASIDE_US", 10_000 * DAY_US)


def a_mark_holds_wherever_the_row_is(patch: Patch) -> None:
    def place(row: Job) -> int | None:
        mark = read_options(row.opts).aside
        return mark and mark[0]

    patch.setattr(aside, "_place", place)


def who_knows_late_of_an_end_leaves_it_at_that(patch: Patch) -> None:
    patch.setattr(Steered, "bring_back", lambda _: None)
