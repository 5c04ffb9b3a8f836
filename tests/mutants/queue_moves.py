"""Rules of jobs that move to another queue, broken."""

import pytest

from dueline.core.store import Group, Move, Store
from dueline.jobs import queue_moves, unique_records
from dueline.jobs.unique import UniqueJobs, _Holder

Patch = pytest.MonkeyPatch


def a_job_moves_out_of_its_order(patch: Patch) -> None:
    patch.setattr(queue_moves, "order_of", lambda _row: None)


def a_key_stays_in_its_queue(patch: Patch) -> None:
    def carry(_: UniqueJobs, __: Move, carried: Group, store: Store) -> bool:
        return store.together([carried])[0]

    patch.setattr(UniqueJobs, "carry", carry)


def a_key_is_taken_from_another_job(patch: Patch) -> None:
    patch.setattr(_Holder, "holds", lambda _: False)


def a_key_that_was_left_is_held(patch: Patch) -> None:
    patch.setattr(unique_records, "is_left_behind", lambda _original, _row: False)


def a_taken_key_inserts_the_job(patch: Patch) -> None:
    patch.setattr(unique_records, "_CARRIED_US", 2**60)


def a_taken_key_holds_nothing(patch: Patch) -> None:
    scope_of = unique_records.scope_of
    patch.setattr(
        unique_records, "is_left_behind",
        lambda original, row: scope_of(original) != scope_of(row),
    )  # fmt: skip
