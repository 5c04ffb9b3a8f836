"""Rows whose jobs already exist, unfinished, from another write."""

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from dueline.core.call_options import is_step
from dueline.core.engine import Engine
from dueline.core.errors import Conflict
from dueline.core.job import Job, JobId, State
from dueline.core.lane import living_queue
from dueline.core.store import Move
from dueline.jobs.moves import Change, changed
from dueline.spark.writing.rows_to_jobs import NewJob

EXISTING, REJECT, EARLIEST, REPLACE = "existing", "reject", "earliest", "replace"

ON_CONFLICT: Final = (EXISTING, REJECT, EARLIEST, REPLACE)
"""The existing job is left as it is (the default); the write fails; the job becomes due at the
earlier of both times; or the job gets the due time and priority of the row."""


ON_OTHER_QUEUE: Final = (REJECT, EXISTING)
"""For rows whose jobs are unfinished in another queue: the write fails (the default), or the jobs
are left as they are and counted."""


def elsewhere(living: Iterable[Job], new_jobs: Mapping[JobId, NewJob]) -> dict[JobId, str]:
    """Return the jobs that are unfinished in another queue than their rows name, with the queue."""
    queues = {row.id: living_queue(row.lane.queue) for row in living}
    return {job_id: queue for job_id, queue in queues.items() if queue != new_jobs[job_id].queue}


def reject_elsewhere(queues: Mapping[JobId, str]) -> None:
    """Raise an error if rows have the ids of jobs in another queue.

    Raises:
        Conflict: There are such rows.
    """
    if queues:
        job_id = min(queues)
        raise Conflict(
            f"Rows of this write have the ids of jobs in another queue: {len(queues)}, such as"
            f" {job_id.hex()} in {queues[job_id]}.",
            hint="Name jobs by dedupe_key or idColumns, which are unique per queue, or make it"
            " part of job_id. onOtherQueue=existing leaves those jobs as they are.",
        )


def reject(living: Collection[JobId]) -> None:
    """Raise an error if unfinished jobs of another write have the ids of rows.

    Raises:
        Conflict: There are such jobs.
    """
    if living:
        raise Conflict(
            f"Jobs of this write are unfinished from another write: {len(living)}, such as"
            f" {min(living).hex()}.",
            hint="Use onConflict=existing to leave them as they are and add the others.",
        )


def moves(
    living: Iterable[Job],
    new_jobs: Mapping[JobId, NewJob],
    on_conflict: str,
    *,
    engine: Engine,
    now_us: int,
) -> list[Move]:
    """Return the changes of unfinished jobs, the same at each repetition.

    Jobs that were claimed, dead jobs and workflow steps are left as they are: their times no
    longer come from an enqueue call.
    """
    if on_conflict not in (EARLIEST, REPLACE):
        return []
    moved = []
    for row in living:
        if row.fence or row.state != State.WAITING or row.outcome or is_step(row):
            continue
        new_job = new_jobs[row.id]
        if living_queue(row.lane.queue) != new_job.queue:
            continue
        at_us = max(now_us if new_job.due_us is None else new_job.due_us, now_us)
        if on_conflict == EARLIEST and at_us >= row.at_us:
            continue
        change = Change(at_us, new_job.priority if on_conflict == REPLACE else None)
        width_us = engine.catalog.settings(row.lane.queue).width_us
        moved.append(changed(row, change, token=engine.ids.token(), width_us=width_us))
    return moved
