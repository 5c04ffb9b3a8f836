"""Rules of workflows, broken."""

from collections.abc import Collection, Iterable, Sequence

import pytest

from dueline.core.attempt import Ended, Outcome
from dueline.core.clock import DAY_US
from dueline.core.engine import Engine
from dueline.core.errors import EnqueueUnknown, Unknown
from dueline.core.job import Claim, Job, JobId
from dueline.core.store import Commit, Group, Put, Store
from dueline.jobs import decisions, group_cancellation
from dueline.jobs.decisions import Decision
from dueline.worker import workflow_steps
from dueline.worker.claimer import ClaimedJob
from dueline.worker.settler import Settler
from dueline.worker.workflow_steps import SortedSteps, WorkflowSteps
from dueline.workflows import readiness, records, release, workflow
from dueline.workflows.graph import Layout
from dueline.workflows.records import Layouts
from dueline.workflows.release import advance
from dueline.workflows.workflow import Start

Patch = pytest.MonkeyPatch


def the_layout_is_stored_after_the_steps(patch: Patch) -> None:
    send = workflow.send

    def send_steps_first(engine: Engine, start: Start, *, again: bool = False) -> None:
        try:
            engine.recording_store.add(list(start.jobs))
        except Unknown as error:
            raise EnqueueUnknown.about(start.jobs) from error
        send(engine, start, again=again)

    patch.setattr(workflow, "send", send_steps_first)


def a_start_that_is_repeated_has_other_steps(patch: Patch) -> None:
    send = workflow.send

    def send_others(engine: Engine, start: Start, *, again: bool = False) -> None:
        if again:
            ids = engine.ids.many(len(start.jobs), start.layout.started_us)
            jobs = [job._replace(id=one) for job, one in zip(start.jobs, ids, strict=True)]
            start = start._replace(jobs=jobs)
        send(engine, start, again=again)

    patch.setattr(workflow, "send", send_others)


def an_end_is_not_recorded(patch: Patch) -> None:
    patch.setattr(records, "record", lambda _job, _outcome: [])
    patch.setattr(records, "record_done", lambda _done: [])


def an_end_is_recorded_after_the_row_went(patch: Patch) -> None:
    follow = decisions._follow

    def drop_first(store: Store, made: Sequence[Decision]) -> list[bool]:
        done = follow(store, [one._replace(carried=Group(jobs=one.carried.jobs)) for one in made])
        for one in made:
            for commit in one.carried.commits:
                store.commit(commit.partition, commit.writes)
        return done

    patch.setattr(decisions, "_follow", drop_first)


def who_ends_a_step_looks_before_that_is_recorded(patch: Patch) -> None:
    settle = Settler.settle

    def look_first(
        self: Settler,
        ended: Sequence[Ended],
        started: Sequence[Job],
        wished: Collection[Claim] = (),
    ) -> list[Job]:
        advance(self._engine, Layouts(), [one.job for one in ended])
        return settle(self, ended, started, wished)

    patch.setattr(Settler, "settle", look_first)
    patch.setattr(WorkflowSteps, "advance", lambda _self: None)


def whatever_was_tried_is_taken_for_ended(patch: Patch) -> None:
    def settled(self: WorkflowSteps, ended: Sequence[Ended], lost: Sequence[Job]) -> None:
        del lost
        self.ended(one.job for one in ended)
        self._sure.update(one.job.id for one in ended)

    patch.setattr(WorkflowSteps, "settled", settled)


def who_fills_a_place_reads_before_it_notes_that(patch: Patch) -> None:
    note = release._noted

    def read_first(engine: Engine, flow: JobId, step: int, full: set[int]) -> set[int]:
        known = records.full(engine.store, flow, step)
        note(engine, flow, step, full)
        return known | full

    patch.setattr(release, "_noted", read_first)


def a_claimed_step_does_not_ask(patch: Patch) -> None:
    sort = WorkflowSteps.sort

    def let_run(self: WorkflowSteps, taken: Sequence[ClaimedJob]) -> SortedSteps:
        found = sort(self, [one for one in taken if not one.job.task])  # signals are waited for
        return found._replace(fit=[one for one in taken if one.job.task])

    patch.setattr(WorkflowSteps, "sort", let_run)


def who_parks_a_step_looks_no_more(patch: Patch) -> None:
    def turn_away(_self: WorkflowSteps, _parked: Iterable[Job], _now_us: int) -> None:
        pass

    patch.setattr(WorkflowSteps, "_look_again", turn_away)


def a_group_of_which_a_part_failed_goes_on(patch: Patch) -> None:
    def leave_alone(_engine: Engine, _flow: JobId, _layout: Layout, _step: int) -> None:
        pass

    patch.setattr(workflow_steps, "cancel_group", leave_alone)


def the_end_of_a_part_cancels_nothing(patch: Patch) -> None:
    patch.setattr(group_cancellation, "_cancel_parts", lambda *_: [])


def what_undoes_is_never_needless(patch: Patch) -> None:
    patch.setattr(readiness, "_needless", lambda *_: None)


def a_death_is_recorded_where_ends_are(patch: Patch) -> None:
    whole = records.record

    def record(job: Job, outcome: Outcome) -> list[Commit]:
        return [
            commit._replace(
                writes=tuple(
                    put._replace(key=put.key.removesuffix("-dead"))
                    for put in commit.writes
                    if isinstance(put, Put)
                )
            )
            for commit in whole(job, outcome)
        ]

    patch.setattr(records, "record", record)


def a_step_that_needs_others_is_born_without_a_time(patch: Patch) -> None:
    patch.setattr(workflow, "PARK_US", 3650 * DAY_US)


def a_step_is_parked_for_ever(patch: Patch) -> None:
    patch.setattr(release, "PARK_US", 3650 * DAY_US)
    patch.setattr(release, "PARK_US_MAX", 3650 * DAY_US)
