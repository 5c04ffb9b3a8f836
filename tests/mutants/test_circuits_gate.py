"""The rules of tasks that pause themselves are needed: without each a test fails."""

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from tests.mutants import circuits
from tests.mutants.gate import Mutant, Named, each_needed
from tests.stores import test_circuits


def in_a_world(test: Callable[..., object]) -> Named:
    """Name a test of circuits, with its jobs on the memory store."""

    def world() -> Mapping[str, object]:
        return {"world": test_circuits.stocked("memory", Path(tempfile.mkdtemp()))}

    return Named(test, given=world)


ONE = in_a_world(test_circuits.test_one_job_probes_at_a_time_and_its_success_resumes)
ANOTHER = in_a_world(test_circuits.test_a_probe_that_fails_is_followed_by_another)
BY_HAND = in_a_world(test_circuits.test_an_operator_has_the_last_word)

MUTANTS: Final = (
    Mutant("P16", circuits.a_probe_comes_at_any_time, ONE),
    Mutant("P16", circuits.every_job_is_a_probe, ONE),
    Mutant("P16", circuits.a_failure_closes_the_circuit, ANOTHER),
    Mutant("P16", circuits.a_job_probes_again,
           in_a_world(test_circuits.test_a_worker_that_is_killed_while_probing_holds_nothing_up)),
    Mutant("P16", circuits.nobody_awaits_the_probe,
           in_a_world(test_circuits.test_a_probe_that_outlasts_the_period_is_the_only_one)),
    Mutant("P16", circuits.nobody_restores_a_pause,
           in_a_world(test_circuits.test_a_process_that_dies_between_record_and_pause_is_made_up_for)),
    Mutant("P16", circuits.nobody_ends_a_pause_without_a_circuit,
           in_a_world(test_circuits.test_a_change_that_comes_late_does_not_leave_a_pause)),
    Mutant("P16", circuits.the_settings_do_not_say_who_paused, BY_HAND),
    Mutant("P16", circuits.an_operator_keeps_the_record, BY_HAND),
    Mutant("P16", circuits.each_job_of_a_dead_process_counts,
           in_a_world(test_circuits.test_a_crash_counts_for_the_job_that_ran_alone)),
)  # fmt: skip

test_without_its_rule_a_test_fails = each_needed(MUTANTS)
