"""Calls of ended jobs, which the history of a queue keeps at the level `arguments`."""

from typing import Final

from dueline.admin.search import history_of
from dueline.core.attempt import EnqueuedEvent
from dueline.core.engine import Engine
from dueline.core.ids import created_us
from dueline.core.job import JobId
from dueline.core.lane import LIMIT_MARK
from dueline.jobs.history import LATE_US
from dueline.jobs.queue import EnqueueRequest

KEEP_ARGUMENTS: Final = (
    'Arguments of ended jobs are kept with `app.queue(NAME, history="arguments")`.'
)


def kept_call(engine: Engine, job_id: JobId, queue: str | None = None) -> EnqueuedEvent | None:
    """Return the event of a job's enqueue if it has the arguments.

    Args:
        engine: The engine.
        job_id: The job.
        queue: Its queue, if known.
    """
    names = [
        name
        for name in engine.catalog.chosen(queue)
        if engine.catalog.settings(name).history == "arguments"
    ]
    began_us, wanted = created_us(job_id), job_id.hex()
    rows = history_of(engine, names, began_us - LATE_US, until_us=began_us + LATE_US)
    for row in rows:
        if row.job == wanted and isinstance(row, EnqueuedEvent) and row.payload is not None:
            return row
    return None


def request_of(call: EnqueuedEvent) -> EnqueueRequest:
    """Return the same call, due now; unique keys and other options are not in the history."""
    assert call.codec is not None
    assert call.payload is not None
    limits = tuple(filter(None, call.limits.split(LIMIT_MARK)))
    return EnqueueRequest(
        call.queue,
        call.task,
        call.codec,
        [call.payload],
        priority=call.priority,
        tenant=call.tenant,
        limits=[limits] if limits else (),
    )
