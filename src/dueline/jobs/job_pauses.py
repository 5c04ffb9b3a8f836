"""Pauses of single jobs.

A paused job is moved PAUSED_US ahead of its place, which no clock reaches, and back when it is
resumed. So a pause is one conditional write, needs no option in the row, and each part of the code
that looks for due jobs leaves the job alone (rule P17).
"""

from dueline.core.call_options import durable_place
from dueline.core.errors import Conflict
from dueline.core.job import PAUSED_US, JobId
from dueline.jobs.moves import changeable, conflict_error
from dueline.jobs.paused_rows import is_moved, resumed
from dueline.jobs.queue import Queues

_ROUNDS_MAX = 5


def pause(queues: Queues, job_id: JobId) -> None:
    """Let no worker claim a waiting job until it is resumed; a paused one stays so.

    Raises:
        NotFound: There is no such job.
        Conflict: It runs, is dead or has ended; nothing was changed.
    """
    for _ in range(_ROUNDS_MAX):
        current = queues.find(job_id)
        if current.status == "paused":
            return
        row = changeable(job_id, "paused", current.status, current.row)
        place = durable_place(row)
        if place is not None and place.stop is not None and place.stop.at_us == row.at_us:
            raise conflict_error(job_id, "paused", "stopped")
        if is_moved(queues.engine, row, row.at_us + PAUSED_US):
            queues.note([row], "paused")
            return
    raise conflict_error(job_id, "paused", "changing")


def resume(queues: Queues, job_id: JobId) -> None:
    """Return a paused job to its place.

    A job that waits for others, or a durable function, may have been released meanwhile: it is due
    now, and its claim finds out.

    Raises:
        NotFound: There is no such job.
        Conflict: It is not paused.
    """
    for _ in range(_ROUNDS_MAX):
        current = queues.find(job_id)
        row = current.row
        if row is None or current.status != "paused":
            raise Conflict(
                f"The job {job_id.hex()} is {current.status}, not paused.",
                hint="See `dueline jobs explain`.",
            )
        if resumed(queues.engine, row):
            queues.note([row], "resumed")
            return
    raise conflict_error(job_id, "resumed", "changing")
