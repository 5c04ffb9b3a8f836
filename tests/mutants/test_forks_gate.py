"""The rules of forked workflows and of actors are needed: without each a test fails."""

import tempfile
from collections.abc import Callable, Mapping
from typing import Final

from dueline import Dueline
from tests.harness.workflow_tasks import with_tasks
from tests.mutants import forks
from tests.mutants.gate import Mutant, Named, each_needed
from tests.stores import test_actors
from tests.unit.workflows import test_forking


def in_app(test: Callable[..., object]) -> Named:
    """Name a test of workflows, with its application."""
    return Named(test, given=lambda: {"app": with_tasks(Dueline("memory://"))})


def in_file(test: Callable[..., object]) -> Named:
    """Name a test of stores, on a file."""

    def given() -> Mapping[str, object]:
        return {"url": f"sqlite:///{tempfile.mkdtemp()}/a.db?synchronous=NORMAL"}

    return Named(test, given=given)


MUTANTS: Final = (
    Mutant("W10", forks.what_needs_a_step_that_runs_is_reused,
           in_app(test_forking.test_steps_before_the_fork_do_not_run_again_and_the_rest_does)),
    Mutant("W10", forks.outcomes_are_not_copied,
           in_app(test_forking.test_a_dead_workflow_is_forked_from_the_step_that_failed)),
    Mutant("W10", forks.large_values_stay_with_the_old_workflow,
           in_app(test_forking.test_large_results_are_copied_so_that_the_old_workflow_may_expire)),
    Mutant("W10", forks.an_undone_step_is_reused,
           in_app(test_forking.test_a_step_that_was_undone_is_not_reused)),
    Mutant("W10", forks.a_workflow_that_runs_is_forked,
           in_app(test_forking.test_a_workflow_that_runs_is_refused)),
    Mutant("W3", forks.full_blocks_are_not_marked,
           in_app(test_forking.test_a_wide_step_is_released_at_once)),
    Mutant("O3", forks.changes_by_hand_have_no_actor,
           in_file(test_actors.test_the_history_of_a_job_says_who_changed_it)),
    Mutant("O3", forks.ends_by_hand_have_no_actor,
           in_file(test_actors.test_all_jobs_of_a_change_say_who_made_it)),
)  # fmt: skip

test_without_its_rule_a_test_fails = each_needed(MUTANTS)
