"""Rules of moves of order keys and histories, and of their audit, broken."""

from collections.abc import Callable

import pytest

from dueline.admin import move, move_rules
from dueline.admin.move_audit import MoveAuditor
from dueline.core.engine import Engine
from dueline.core.job import JobId
from dueline.jobs import orders
from tests.mutants.sources import change_source

Patch = pytest.MonkeyPatch


def entries_have_no_marks(patch: Patch) -> None:
    patch.setattr(orders, "_ELSEWHERE", b"")


def marks_go_while_rows_are_in_the_old_store(patch: Patch) -> None:
    rows = orders._rows

    def none_of_the_old(engine: Engine, ids: set[JobId]) -> object:
        return {} if engine.catalog.features.moved_to else rows(engine, ids)

    patch.setattr(orders, "_rows", none_of_the_old)


def the_history_stays(patch: Patch) -> None:
    patch.setattr(move, "copy_history", lambda *_: 0)


def no_job_is_looked_at_twice(patch: Patch) -> None:
    patch.setattr(MoveAuditor, "_judge_suspects", lambda _: None)


def unknown_ends_are_claimed_to_be_lost(patch: Patch) -> None:
    patch.setattr(MoveAuditor, "_would_show", lambda *_: True)


def not_audited(name: str) -> Callable[[Patch], None]:
    """Return a change after which the audit does not apply a rule."""

    def leave_out(patch: Patch) -> None:
        judge_run = move_rules._judge_run

        def without(*given: object) -> move_rules.Judged:
            judged = judge_run(*given)  # type: ignore[arg-type]
            return judged._replace(rules=[rule for rule in judged.rules if rule != name])

        patch.setattr(move_rules, "_judge_run", without)

    leave_out.__name__ = f"the rule {name!r} is left out"
    return leave_out


def a_key_is_not_compared(patch: Patch) -> None:
    change_source(patch, MoveAuditor, "_judge_keys", "match key[0]:", "match ' ':")
