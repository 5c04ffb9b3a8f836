"""The rules of exports are needed: without each a test fails."""

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from tests.mutants import exports
from tests.mutants.gate import Mutant, Named, each_needed
from tests.unit.admin import test_exports


def on_a_stage(test: Callable[..., object]) -> Named:
    """Name a test of exports, with its stores."""
    return Named(
        test,
        given=lambda: {"stage": test_exports.Stage(("memory", "memory"), Path(tempfile.mkdtemp()))},
    )


def between_kinds(test: Callable[..., object]) -> Named:
    """Name a test of exports that makes its own stores."""

    def given() -> Mapping[str, object]:
        return {"kinds": ("memory", "steps"), "tmp_path": Path(tempfile.mkdtemp())}

    return Named(test, given=given)


MUTANTS: Final = (
    Mutant("X7", exports.a_store_is_not_frozen,
           on_a_stage(test_exports.test_a_frozen_store_starts_and_accepts_nothing)),
    Mutant("X7", exports.claims_are_not_waited_for,
           on_a_stage(test_exports.test_a_frozen_store_starts_and_accepts_nothing)),
    Mutant("X7", exports.a_freeze_lasts_for_ever,
           on_a_stage(test_exports.test_a_killed_export_leaves_no_export_and_thaws_by_itself)),
    Mutant("X8", exports.parts_are_not_checked,
           on_a_stage(test_exports.test_bad_input_is_refused)),
    Mutant("X9", exports.the_new_store_is_open_meanwhile,
           between_kinds(test_exports.test_an_import_goes_on_after_a_kill_at_each_call)),
    Mutant("X9", exports.watermarks_are_raised_with_their_part,
           between_kinds(test_exports.test_an_import_goes_on_after_a_kill_at_each_call)),
    Mutant("X10", exports.the_store_is_not_compared,
           on_a_stage(test_exports.test_a_store_that_differs_after_the_import_stays_closed)),
)  # fmt: skip

test_without_its_rule_a_test_fails = each_needed(MUTANTS)
