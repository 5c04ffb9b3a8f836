"""Rules of jobs with order keys, broken."""

from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from dueline.core.call_options import OrderPlace
from dueline.core.engine import Engine
from dueline.core.job import Job, JobId, State
from dueline.core.store import Put
from dueline.jobs import orders
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
