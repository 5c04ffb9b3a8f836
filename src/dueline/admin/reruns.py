"""Calls of ended jobs, which the history of a queue keeps at the level `arguments`."""

from typing import Final

from dueline.admin.search import history_of
from dueline.core.attempt import EnqueuedEvent
from dueline.core.engine import Engine
from dueline.core.ids import created_us
from dueline.core.job import Job, JobId
from dueline.core.lane import LIMIT_MARK
from dueline.jobs.history import LATE_US
from dueline.jobs.queue import EnqueueRequest
from dueline.workflows.forking import Kept, call_of
from dueline.workflows.parts import StepCall

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


def kept_step(engine: Engine) -> Kept:
    """Return what finds the calls of the steps of a workflow: in their rows, then in the history.

    Options other than limits, priority and tenant are in rows only.
    """

    def found(job_id: JobId, _: int, row: Job | None) -> StepCall | None:
        if row is not None:
            return call_of(row)
        event = kept_call(engine, job_id)
        if event is None:
            return None
        request = request_of(event)
        (body,), (limits, *_rest) = request.bodies, (*request.limits, ())
        return StepCall(
            request.task, request.queue, request.codec, body, request.priority, request.tenant,
            limits=tuple(limits),
        )  # fmt: skip

    return found


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
