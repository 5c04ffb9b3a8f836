"""What keeps a queue going and is seen of it is needed: without each a test fails."""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tests.mutants import upkeep
from tests.mutants.gate import Mutant, Named, each_needed
from tests.stores import test_raised_alerts
from tests.stores.sqlite import test_reserve
from tests.unit.admin import test_ended_search


def in_a_folder(test: Callable[..., object], **given: object) -> Named:
    """Name a test that makes a queue file."""
    return Named(test, given=lambda: {"tmp_path": Path(tempfile.mkdtemp()), **given})


RESERVED: Final = in_a_folder(test_reserve.test_more_is_reserved_than_the_disk_has)
SKIPPED: Final = Named(test_raised_alerts.test_a_schedule_whose_occurrences_are_skipped)
EXPIRED: Final = Named(test_raised_alerts.test_a_schedule_whose_job_expired)
PAGES: Final = Named(test_ended_search.test_windows_and_pages_have_all_events_once)

MUTANTS: Final = (
    Mutant("R14", upkeep.new_jobs_use_the_reserve, RESERVED),
    Mutant("R14", upkeep.unique_jobs_use_the_reserve, RESERVED),
    Mutant("R14", upkeep.ends_that_insert_jobs_need_room, RESERVED),
    Mutant("V1", upkeep.a_page_repeats_the_last_job, PAGES),
    Mutant("V1", upkeep.a_window_that_was_not_read_whole_counts, PAGES),
    Mutant("V1", upkeep.rows_are_searched_in_one_case,
           in_a_folder(test_ended_search.test_jobs_are_found_by_error_and_tag,
                       number=1, is_bundled=False)),
    Mutant("P12", upkeep.what_was_reported_counts_again, SKIPPED),
    Mutant("P12", upkeep.a_job_that_waits_has_not_expired, EXPIRED),
)  # fmt: skip

test_without_its_rule_a_test_fails = each_needed(MUTANTS)
