"""The rules of moves of order keys and histories, and of their audit, are needed."""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tests.harness.two_stores import Two
from tests.mutants import moves
from tests.mutants.gate import Mutant, Named, each_needed
from tests.stores import test_orders
from tests.unit.admin import test_move_audit


def on_two(test: Callable[..., object]) -> Named:
    """Name a test of the audit, with its stores."""
    return Named(
        test,
        given=lambda: {"stores": Two(("memory", "memory"), Path(tempfile.mkdtemp()))},
    )


def in_ledgers(test: Callable[..., object]) -> Named:
    """Name a test of order keys that makes the new store."""
    return Named(
        test,
        given=lambda: {
            "ledger": test_orders.Ledger("memory://"), "tmp_path": Path(tempfile.mkdtemp())
        },
    )  # fmt: skip


def planted(plant: Callable[[Two], str]) -> Named:
    """Name the test of a planted fault."""
    return Named(test_move_audit.test_each_planted_fault_is_found, given=lambda: {"plant": plant})


MUTANTS: Final = (
    Mutant("X11", moves.entries_have_no_marks,
           in_ledgers(test_orders.test_jobs_of_a_key_move_with_their_order)),
    Mutant("X11", moves.marks_go_while_rows_are_in_the_old_store,
           in_ledgers(test_orders.test_jobs_of_a_key_move_with_their_order)),
    Mutant("X12", moves.the_history_stays,
           on_two(test_move_audit.test_what_happened_before_is_found_in_the_new_store)),
    Mutant("X12", moves.no_job_is_looked_at_twice, planted(test_move_audit.lose)),
    Mutant("X12", moves.unknown_ends_are_claimed_to_be_lost,
           on_two(test_move_audit.test_what_the_histories_do_not_have_is_said_and_not_claimed)),
    Mutant("X12", moves.not_audited("in both"), planted(test_move_audit.double)),
    Mutant("X12", moves.not_audited("left"), planted(test_move_audit.leave)),
    Mutant("X12", moves.not_audited("ends differ"), planted(test_move_audit.change_a_result)),
    Mutant("X12", moves.not_audited("another end"), planted(test_move_audit.change_a_state)),
    Mutant("X12", moves.not_audited("ended before"), planted(test_move_audit.start_again)),
    Mutant("X12", moves.not_audited("no history"), planted(test_move_audit.forget_the_history)),
    Mutant("X12", moves.not_audited("once"), planted(test_move_audit.run_once_again)),
    Mutant("X12", moves.a_key_is_not_compared, planted(test_move_audit.hold_a_key_twice)),
    Mutant("X12", moves.a_key_is_not_compared, planted(test_move_audit.lose_a_place)),
    Mutant("X12", moves.a_key_is_not_compared, planted(test_move_audit.start_too_early)),
)  # fmt: skip

test_without_its_rule_a_test_fails = each_needed(MUTANTS)
