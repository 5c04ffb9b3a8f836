"""The rules of order keys are needed: without each a test fails."""

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from tests.harness.durable_stage import Stages
from tests.mutants import orders
from tests.mutants.gate import Mutant, Named, each_needed
from tests.stores import test_order_crashes, test_orders


def in_a_ledger(test: Callable[..., object]) -> Named:
    """Name a test of jobs with order keys, with its application."""
    return Named(test, given=lambda: {"ledger": test_orders.Ledger("memory://")})


def on_stages(test: Callable[..., object], **given: object) -> Named:
    """Name a test of disturbed processes, with its stages."""

    def stages() -> Mapping[str, object]:
        folder = Path(tempfile.mkdtemp())
        return {"stages": Stages("memory", folder, test_order_crashes.declare), **given}

    return Named(test, given=stages)


MUTANTS: Final = (
    Mutant("J6", orders.an_entry_is_appended_on_any_version,
           on_stages(test_order_crashes.test_callers_that_overlap_lose_no_entry)),
    Mutant("J6", orders.no_entry_is_appended,
           in_a_ledger(test_orders.test_a_unique_job_has_its_place)),
    Mutant("J6", orders.a_job_without_an_entry_gets_none,
           in_a_ledger(test_orders.test_a_job_without_an_entry_gets_one)),
    Mutant("J7", orders.a_claimed_job_runs_before_its_turn,
           in_a_ledger(test_orders.test_a_later_priority_and_an_earlier_time_do_not_pass)),
    Mutant("J8", orders.the_rows_of_entries_are_read_once,
           in_a_ledger(test_orders.test_a_row_that_one_read_misses_has_not_ended)),
    Mutant("J8", orders.a_dead_job_never_blocks,
           in_a_ledger(test_orders.test_a_dead_job_blocks_its_key_until_it_is_retried)),
    Mutant("J9", orders.one_that_was_skipped_keeps_its_turn,
           in_a_ledger(test_orders.test_a_dead_job_is_skipped_and_comes_last_when_it_is_retried)),
    Mutant("J10", orders.an_end_releases_nothing,
           in_a_ledger(test_orders.test_a_dead_job_that_is_deleted_frees_its_key)),
    Mutant("J10", orders.a_job_that_waits_never_checks,
           on_stages(test_order_crashes.test_a_worker_keeps_the_order_whatever_stops_it,
                     how="stop")),
    Mutant("J10", orders.a_start_hurries_nobody,
           on_stages(test_order_crashes.test_a_lost_release_delays_the_next_job_by_seconds)),
    Mutant("J10", orders.a_job_that_is_next_is_slowed_down,
           on_stages(test_order_crashes.test_a_lost_release_delays_the_next_job_by_seconds)),
    Mutant("J10", orders.a_refused_release_is_not_repeated,
           on_stages(test_order_crashes.test_a_release_that_is_refused_is_repeated)),
    Mutant("J10", orders.a_dead_job_that_is_retried_starts_unread,
           on_stages(test_order_crashes.test_after_a_dead_job_the_next_one_checks_soon,
                     how="retry")),
    Mutant("J10", orders.a_dead_job_is_deleted_before_the_next_is_hurried,
           on_stages(test_order_crashes.test_after_a_dead_job_the_next_one_checks_soon,
                     how="delete")),
    Mutant("T16", orders.a_queue_never_skips,
           in_a_ledger(test_orders.test_the_queue_says_what_a_dead_job_does_unless_its_call_does)),
    Mutant("T16", orders.a_queue_overrules_its_calls,
           in_a_ledger(test_orders.test_the_queue_says_what_a_dead_job_does_unless_its_call_does)),
)  # fmt: skip

test_without_its_rule_a_test_fails = each_needed(MUTANTS)
