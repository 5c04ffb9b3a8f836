"""The rules of jobs that wait for others are needed: without each a test fails."""

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from tests.harness.durable_stage import Stages
from tests.mutants import dependencies
from tests.mutants.gate import Mutant, Named, each_needed
from tests.stores import test_dependencies, test_dependency_crashes


def in_a_shop(test: Callable[..., object]) -> Named:
    """Name a test of jobs that wait, with its application."""
    return Named(test, given=lambda: {"shop": test_dependencies.Shop("memory://")})


def on_stages() -> Mapping[str, object]:
    """Give a test of disturbed workers its stages."""
    folder = Path(tempfile.mkdtemp())
    return {"stages": Stages("memory", folder, test_dependency_crashes.declare), "how": "stop"}


MUTANTS: Final = (
    Mutant("B4", dependencies.the_key_of_a_workflow_waits_for_its_last_step,
           in_a_shop(test_dependencies.test_a_workflow_that_fails_holds_its_key_while_it_can_be_retried)),
    Mutant("J1", dependencies.a_claimed_job_that_awaits_others_runs,
           in_a_shop(test_dependencies.test_a_waiting_job_is_cancelled_retried_and_rescheduled)),
    Mutant("J2", dependencies.a_dead_job_has_ended,
           in_a_shop(test_dependencies.test_a_dead_job_holds_cancels_or_is_skipped)),
    Mutant("J3", dependencies.what_is_awaited_is_not_marked,
           in_a_shop(test_dependencies.test_a_cancelled_job_cancels_those_that_wait)),
    Mutant("J3", dependencies.the_end_of_a_marked_job_is_not_recorded,
           in_a_shop(test_dependencies.test_a_deleted_dead_job_cancels_those_that_wait)),
    Mutant("J4", dependencies.a_job_that_waits_never_checks,
           Named(test_dependency_crashes.test_a_worker_releases_a_job_whatever_stops_it,
                 given=on_stages)),
)  # fmt: skip

test_without_its_rule_a_test_fails = each_needed(MUTANTS)
