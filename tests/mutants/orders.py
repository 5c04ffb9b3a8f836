"""Rules of jobs with order keys, broken."""

from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from dueline.core.call_options import OrderPlace, order_of
from dueline.core.engine import Engine
from dueline.core.job import Job, JobId, State
from dueline.core.store import Put
from dueline.jobs import completion, orders
from dueline.worker import workflow_steps

Patch = pytest.MonkeyPatch


def an_entry_is_appended_on_any_version(patch: Patch) -> None:
    """Two callers that read the same head take the same number."""

    def plain(key: str, version: bytes, value: bytes, **given: Any) -> Put:  # noqa: ANN401
        return Put(key, version, value, expires_us=given.get("expires_us"))

    patch.setattr(orders, "Put", plain)


def no_entry_is_appended(patch: Patch) -> None:
    patch.setattr(orders, "enlist", lambda _engine, _jobs: None)


def a_claimed_job_runs_before_its_turn(patch: Patch) -> None:
    patch.setattr(workflow_steps, "waits_for_turn", lambda _job: None)


def a_job_without_an_entry_gets_none(patch: Patch) -> None:
    def leave(_engine: Engine, _partition: str, rows: Sequence[Job]) -> dict[JobId, int]:
        return {row.id: 0 for row in rows}

    patch.setattr(orders, "_numbers", leave)


def a_dead_job_never_blocks(patch: Patch) -> None:
    has_ended = orders._has_ended
    patch.setattr(
        orders,
        "_has_ended",
        lambda row, turn: row.state == State.DEAD or has_ended(row, turn),
    )


def one_that_was_skipped_keeps_its_turn(patch: Patch) -> None:
    patch.setattr(OrderPlace, "again", lambda self: self)


def an_end_releases_nothing(patch: Patch) -> None:
    patch.setattr(orders, "advance", lambda _engine, _ended: 0)


def a_job_that_waits_never_checks(patch: Patch) -> None:
    for name in ("CHECK_US", "CHECK_US_MAX", "NEXT_US"):
        patch.setattr(orders, name, 2**50)


def the_rows_of_entries_are_read_once(patch: Patch) -> None:
    def read_once(engine: Engine, ids: Iterable[JobId]) -> dict[JobId, Job]:
        rows = engine.store.find(list(ids))
        return {row.id: row for row in rows if row is not None}

    patch.setattr(orders, "_rows", read_once)


def a_start_hurries_nobody(patch: Patch) -> None:
    hurry = orders._hurry

    def hurry_others(engine: Engine, keys: Iterable[Any]) -> None:
        if not isinstance(keys, map):  # of those that start
            hurry(engine, keys)

    patch.setattr(orders, "_hurry", hurry_others)


def a_job_that_is_next_is_slowed_down(patch: Patch) -> None:
    patch.setattr(orders, "NEXT_US", orders.CHECK_US_MAX)


def a_refused_release_is_not_repeated(patch: Patch) -> None:
    patch.setattr(orders, "_ROUNDS_MAX", 1)


def a_dead_job_that_is_retried_starts_unread(patch: Patch) -> None:
    again = OrderPlace.again
    patch.setattr(OrderPlace, "again", lambda self: again(self) if self.skips else self)


def a_dead_job_is_deleted_before_the_next_is_hurried(patch: Patch) -> None:
    patch.setattr(orders, "hurry", lambda _engine, _first: None)


def a_queue_never_skips(patch: Patch) -> None:
    patch.setattr(completion, "_is_skipped", lambda _job, _settings: False)


def a_queue_overrules_its_calls(patch: Patch) -> None:
    patch.setattr(
        completion,
        "_is_skipped",
        lambda job, settings: order_of(job) is not None and settings.dead_in_order == "skip",
    )
