"""Release the steps of a workflow after those that ended, and cancel groups that have failed.

The process that ends a part which fails a group cancels the parts that wait, and requests the end
of those that run (rule W8): all if a worker ends it, `AT_ONCE` if another process does. The step
that gathers the group does the same when it is claimed, so what a killed process left is cancelled
then.
"""

from collections.abc import Container, Iterable, Sequence
from contextlib import suppress
from typing import Final

from dueline.core.attempt import Outcome
from dueline.core.engine import Engine
from dueline.core.errors import Conflict
from dueline.core.job import Job, JobId
from dueline.core.job_status import status_of
from dueline.jobs import cancel_requests, dependencies, orders, webhooks
from dueline.jobs.called_jobs import wake_parents
from dueline.jobs.completion import Finished, finish, finish_of
from dueline.jobs.dependents import awaited_with
from dueline.jobs.parked_functions import ask_to_end, may_have_begun
from dueline.workflows import records, release
from dueline.workflows.records import Layouts
from dueline.workflows.release import BrokenGroup, Released

AT_ONCE: Final = 500
"""Maximum number of steps that the end of a part checks and cancels, from that part on."""


def advance(
    engine: Engine, layouts: Layouts, ended: Iterable[Job], sure: Container[JobId] = ()
) -> Released:
    """Release what waited for jobs that may have ended, and cancel failed groups.

    Args:
        engine: The engine.
        layouts: The layouts that are known.
        ended: Jobs that may have ended; those of no workflow are skipped.
        sure: Ids of jobs that have certainly succeeded; their outcomes are not read.

    Returns:
        How many steps, parents and dependents were released, and the groups of which more may have
        to be cancelled.
    """
    ended = list(ended)
    steps, broken = release.advance(engine, layouts, ended, sure)
    steps += wake_parents(engine, ended, sure)
    steps += dependencies.wake(engine, awaited_with(ended))
    steps += orders.advance(engine, ended)
    webhooks.wake(engine, ended)
    cancelled = [job for group in broken for job in _cancel_parts(engine, group)]
    steps += release.advance(engine, layouts, cancelled).steps
    steps += dependencies.wake(engine, awaited_with(cancelled))
    return Released(
        steps,
        [
            broken_group
            for broken_group in broken
            if broken_group.gathers - broken_group.first > AT_ONCE
        ],
    )


def _cancel_parts(engine: Engine, group: BrokenGroup) -> Sequence[Job]:
    """End the parts that wait, request the end of those that run; return those that waited."""
    numbers = [*range(group.failed, group.gathers), *range(group.first, group.failed)]
    ids = [records.job_of(group.flow, number) for number in numbers[:AT_ONCE]]
    now_us = engine.time.latest_us()
    waiting: list[Job] = []
    for row in engine.store.find(ids):
        status = "dead" if row is None or row.outcome else status_of(row, now_us)
        if row is None or status == "dead":
            continue
        if may_have_begun(row):
            with suppress(Conflict):  # it has ended
                ask_to_end(engine, row.id)
        if status == "running":
            version = engine.ids.token()
            cancel_requests.ask(engine.store, row, now_us=now_us, version=version)
        elif not may_have_begun(row):
            waiting.append(row)
    settings, outcome = engine.catalog.expect_here, Outcome("cancelled", now_us)
    ends = [
        Finished(row, finish_of(row, outcome, None, settings(row.lane.queue))) for row in waiting
    ]
    if ends:
        finish(engine.store, ends)
    return waiting
