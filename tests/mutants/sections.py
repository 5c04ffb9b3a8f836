"""Rules of sections that must not repeat, broken."""

import pytest

from dueline.tasks import sections
from dueline.tasks.handler import Context
from dueline.worker.settler import Settler
from tests.mutants.sources import change_source

Patch = pytest.MonkeyPatch


def the_body_begins_without_a_mark(patch: Patch) -> None:
    change_source(patch, sections.Section, "_mark",
                  "store.commit(partition_of(job.id), (put,))", "True")  # fmt: skip


def a_lost_claim_begins_a_section(patch: Patch) -> None:
    change_source(patch, sections.Section, "_mark", "if not is_marked or not self._confirm",
                  "if not is_marked and not self._confirm")  # fmt: skip


def a_death_in_a_section_is_not_asked_for(patch: Patch) -> None:
    patch.setattr(Settler, "open_sections", lambda _self, _jobs: {})


def an_interrupt_ends_a_section(patch: Patch) -> None:
    patch.setattr(sections, "_is_interrupt", lambda _error: False)


def an_open_section_ends_as_its_exception(patch: Patch) -> None:
    patch.setattr(Context, "ending_after", lambda _self, ending: ending)


def a_section_begins_after_one_that_ended(patch: Patch) -> None:
    patch.setattr(sections.Section, "_expect_first", lambda _self, _store: None)


def the_end_of_a_section_is_forgotten(patch: Patch) -> None:
    change_source(patch, sections.Section, "_end", "self._has_ended or is_success",
                  "self._has_ended")  # fmt: skip


def a_retry_by_hand_keeps_the_marks(patch: Patch) -> None:
    patch.setattr(sections, "withdraw", lambda _store, _jobs: None)
