"""The reserve of the disk, the search of ended jobs and the alert of schedules, broken."""

import pytest

from dueline.admin import ended_search, missed_occurrences
from dueline.foresight import missed_occurrences as conditions
from dueline.stores.sqlite.reserve import Reserve
from tests.mutants.sources import change_source

Patch = pytest.MonkeyPatch


def new_jobs_use_the_reserve(patch: Patch) -> None:
    change_source(patch, Reserve, "_check", "room[0] >= room[1]", "room[0] >= 0")


def unique_jobs_use_the_reserve(patch: Patch) -> None:
    patch.setattr(Reserve, "expect_room_for", lambda _self, _groups: None)


def ends_that_insert_jobs_need_room(patch: Patch) -> None:
    change_source(patch, Reserve, "expect_room_for", "any(group.verdicts", "all(not group.jobs")


def a_page_repeats_the_last_job(patch: Patch) -> None:
    change_source(patch, ended_search, "search_ended", "event.job) < end", "event.job) <= end")


def a_window_that_was_not_read_whole_counts(patch: Patch) -> None:
    change_source(patch, ended_search, "search_ended", "if event.ended_us >= whole_us}", "}")


def rows_are_searched_in_one_case(patch: Patch) -> None:
    change_source(patch, ended_search._Needles, "may_be_in", "body.lower()", "body")


def what_was_reported_counts_again(patch: Patch) -> None:
    kept = "{schedule.name: schedule.skipped for"
    change_source(patch, conditions, "look_at", kept, "{schedule.name: 0 for")


def a_job_that_waits_has_not_expired(patch: Patch) -> None:
    change_source(patch, missed_occurrences, "_expired", "if row is not None:", "if False:")
