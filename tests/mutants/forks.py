"""Rules of forked workflows, and of who changed a job, broken."""

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from dueline.core.store import Store
from dueline.jobs import queue
from dueline.workflows import forking, records
from dueline.workflows.forking import Plan
from dueline.workflows.graph import Layout
from dueline.workflows.readiness import End

Patch = pytest.MonkeyPatch


def what_needs_a_step_that_runs_is_reused(patch: Patch) -> None:
    plan = forking.plan

    def plan_one(layout: Layout, ends: Mapping[int, End], from_step: int) -> Plan:
        reused, anew = plan(layout, ends, from_step)
        kept = {step for step in anew if step != from_step and step in ends}
        return Plan(reused | kept, [step for step in anew if step not in kept])

    patch.setattr(forking, "plan", plan_one)


def outcomes_are_not_copied(patch: Patch) -> None:
    patch.setattr(records, "copies", lambda _flow, _ends: iter(()))


def large_values_stay_with_the_old_workflow(patch: Patch) -> None:
    copies = records.copies

    def without_values(flow: Any, ends: Mapping[int, End]) -> Iterator[Any]:  # noqa: ANN401
        return (commit for commit in copies(flow, ends) if "/values/" not in commit.partition)

    patch.setattr(records, "copies", without_values)


def an_undone_step_is_reused(patch: Patch) -> None:
    patch.setattr(forking, "_expect_not_undone", lambda *_: None)


def a_workflow_that_runs_is_forked(patch: Patch) -> None:
    patch.setattr(forking, "_expect_standstill", lambda *_: None)


def full_blocks_are_not_marked(patch: Patch) -> None:
    patch.setattr(forking, "_full", lambda *_: iter(()))


def changes_by_hand_have_no_actor(patch: Patch) -> None:
    def plain(store: Store, _note: str) -> Store:
        return store

    patch.setattr(queue, "noting", plain)


def ends_by_hand_have_no_actor(patch: Patch) -> None:
    patch.setattr(queue.Queues, "did", lambda _queues, _what: "")
