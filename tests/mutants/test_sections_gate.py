"""The rules of sections that must not repeat are needed: without each a test fails."""

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from tests.harness.durable_stage import Stages
from tests.mutants import sections
from tests.mutants.gate import Mutant, Named, each_needed
from tests.stores import test_sections


def on_stages(test: Callable[..., object], **given: object) -> Named:
    """Name a test of sections, with stages on the memory store."""

    def stages() -> Mapping[str, object]:
        folder = Path(tempfile.mkdtemp())
        return {"stages": Stages("memory", folder, test_sections.declare), **given}

    return Named(test, given=stages)


DIED = on_stages(test_sections.test_a_job_whose_worker_dies_in_a_section_is_uncertain)
INTERRUPT = on_stages(test_sections.test_an_interrupt_in_the_body_is_uncertain)

MUTANTS: Final = (
    Mutant("P14", sections.the_body_begins_without_a_mark, DIED),
    Mutant("P14", sections.a_lost_claim_begins_a_section,
           on_stages(test_sections.test_a_lost_claim_begins_no_section)),
    Mutant("P14", sections.a_death_in_a_section_is_not_asked_for, DIED),
    Mutant("P14", sections.an_interrupt_ends_a_section, INTERRUPT),
    Mutant("P14", sections.an_open_section_ends_as_its_exception, INTERRUPT),
    Mutant("P15", sections.a_section_begins_after_one_that_ended,
           on_stages(test_sections.test_a_section_that_ended_does_not_begin_again)),
    Mutant("P15", sections.the_end_of_a_section_is_forgotten,
           on_stages(test_sections.test_a_section_that_ended_does_not_begin_again)),
    Mutant("P15", sections.a_retry_by_hand_keeps_the_marks,
           on_stages(test_sections.test_a_retry_by_hand_enters_the_section)),
)  # fmt: skip

test_without_its_rule_a_test_fails = each_needed(MUTANTS)
