"""Which laws a claimer's memory makes a difference to.

See `dueline.stores.cursor_cache`. The others send a store the same calls with a memory as without
one.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from dueline.store_tests.laws import SharedSteppedLaws, SteppedLaws
from dueline.stores.cursor_cache import CursorCache, LaneScan

_OF_PROCESSES = set(dir(SharedSteppedLaws)) - set(dir(SteppedLaws))
"""What claims in them is another process."""

LAWS = _OF_PROCESSES | {
    "test_a_claim_brings_at_most_its_limit",
    "test_a_claimed_job_is_nobody_elses_until_the_lease_ends",
    "test_a_job_is_due_again_when_its_lease_ends",
    "test_a_job_that_was_given_back_did_not_die",
    "test_a_lane_gives_its_jobs_by_time_and_then_by_id",
    "test_a_late_outcome_is_accepted_without_another_claim",
    "test_a_lease_taken_ahead_counts_from_the_jobs_time",
    "test_a_moved_job_stands_where_its_new_time_puts_it",
    "test_a_scenario_is_the_same_in_any_year",
    "test_an_extended_claim_is_left_alone",
    "test_an_extension_never_ends_a_claim_sooner",
    "test_any_life_is_the_models",
    "test_many_lanes_are_claimed_from_in_one_call",
    "test_next_at_counts_what_is_claimed",
    "test_next_at_counts_what_is_due_later",
    "test_next_at_follows_every_verdict",
    "test_an_empty_lane_has_no_next_at",
    "test_no_job_is_claimed_before_its_time",
    "test_nothing_is_listed_at_or_below_swept",
    "test_threads_claim_each_job_once",
}


def only_those_that_remember(laws: type) -> type:
    """Leave the other laws out of a class."""
    for name in dir(laws):
        if name.startswith("test_") and name not in LAWS:
            setattr(laws, name, None)
    return laws


@contextmanager
def watched(law: str) -> Iterator[None]:
    """See that a law in which a claim goes on from a memory is listed here."""
    opened = CursorCache.open
    used: list[LaneScan] = []

    def noting(self: CursorCache, *args: object, **how: object) -> LaneScan:
        scan = opened(self, *args, **how)  # type: ignore[arg-type]
        if scan.cache is not None:
            used.append(scan)
        return scan

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CursorCache, "open", noting)
        yield
    assert not used or law in LAWS, f"{law} belongs to LAWS: its claims go on from a memory"
