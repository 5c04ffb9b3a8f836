"""The rules of needs and of paused jobs are kept by the code: without each a test fails."""

from collections.abc import Mapping
from functools import partial
from typing import Final

from dueline import Dueline
from tests.mutants import job_pauses, needs
from tests.mutants.gate import Mutant, Named, by, each_needed
from tests.stores import test_job_pauses, test_needs
from tests.unit.worker import test_resources


def an_application() -> Mapping[str, object]:
    """Give a test its application."""
    return {"app": Dueline("memory://")}


def with_tasks() -> Mapping[str, object]:
    """Give a test of paused jobs its application."""
    return {"app": test_job_pauses.with_tasks(Dueline("memory://"))}


paused = partial(Named, given=with_tasks)
in_memory = partial(Named, given=an_application)
LARGE = by(test_resources.test_small_jobs_pass_a_large_one_for_thirty_seconds)
MUTANTS: Final = (
    Mutant("P17", job_pauses.a_release_moves_a_paused_job,
           paused(test_job_pauses.test_a_release_is_not_missed_by_a_paused_job)),
    Mutant("P17", job_pauses.a_missed_release_is_never_noticed,
           paused(test_job_pauses.test_a_paused_step_goes_on_when_it_is_resumed)),
    Mutant("P17", job_pauses.a_pause_ends_soon,
           paused(test_job_pauses.test_a_paused_job_never_runs_until_it_is_resumed)),
    Mutant("Y1", needs.a_worker_claims_what_it_cannot_run,
           in_memory(test_needs.test_only_a_worker_that_has_the_needs_claims_a_job)),
    Mutant("Y2", needs.a_worker_claims_for_more_than_is_free, LARGE),
    Mutant("Y2", needs.what_held_jobs_use_does_not_count, LARGE),
    Mutant("Y3", needs.nothing_is_left_free_for_a_large_job, LARGE),
    Mutant("Y3", needs.a_large_job_holds_others_back_at_once, LARGE),
)  # fmt: skip

test_without_its_rule_a_test_fails = each_needed(MUTANTS)
