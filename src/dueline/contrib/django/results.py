"""Results of tasks, as Django has them, from jobs."""

import builtins
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
from django.conf import settings
from django.utils import timezone

from dueline.contrib.django.contract import Task, TaskError, TaskResult, TaskResultStatus
from dueline.core.attempt import Attempt
from dueline.core.clock import SECOND_US
from dueline.core.ids import created_us
from dueline.core.job import Job, JobId
from dueline.core.lane import living_queue

STATUS_OF = {
    "scheduled": TaskResultStatus.READY,
    "ready": TaskResultStatus.READY,
    "retrying": TaskResultStatus.READY,
    "paused": TaskResultStatus.READY,
    "running": TaskResultStatus.RUNNING,
    "done": TaskResultStatus.SUCCESSFUL,
}
"""Every other state of a job is FAILED."""


class Call(msgspec.Struct, kw_only=True, frozen=True):
    """What is known of a call; stored as the result of its job, which outlives the job's row.

    Attributes:
        task: Path of the function.
        run_after_us: When it was due, if the caller said so, in microseconds UTC.
        started_us: When it was last claimed; 0: never.
        attempts: Number of claims that ran it.
        worker: The last one.
        value: What the function returned.
    """

    task: str
    args: list[Any]
    kwargs: dict[str, Any]
    queue: str
    priority: int
    run_after_us: int | None
    started_us: int
    attempts: int
    worker: str
    value: Any = None


def call_of(job: Job, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Call:
    """Return what the row of a job says of its call."""
    return Call(
        task=job.task,
        args=list(args),
        kwargs=dict(kwargs),
        queue=living_queue(job.lane.queue),
        priority=job.lane.priority,
        run_after_us=None if job.due_us == job.enqueued_us else job.due_us,
        started_us=job.claimed_us,
        attempts=job.errors + job.crashes + job.is_claimed(),
        worker=job.worker,
    )


def result_of(
    task: Task,
    call: Call,
    job_id: JobId,
    status: TaskResultStatus,
    *,
    error: tuple[str, str] = ("", ""),
    ended_us: int = 0,
    past: Sequence[Attempt] = (),
) -> TaskResult:
    """Return the result of a call.

    Args:
        task: Its task, with its options.
        call: The call.
        job_id: Id of its job.
        status: Its status.
        error: Why its last attempt failed, and the traceback.
        ended_us: When it ended, in microseconds UTC; 0 if it has not.
        past: Its attempts that have ended, as far as the history has them.
    """
    worker_ids = ([attempt.worker for attempt in past] + [call.worker] * call.attempts)[
        : call.attempts
    ]
    last, traceback = error
    errors = [
        _error_of(attempt.error, traceback, f"{attempt.error}\n")
        for attempt in past
        if attempt.error
    ]
    if last:
        errors[-1:] = [_error_of(last, traceback, traceback or f"{last}\n")]
    started_us = min([attempt.claimed_us for attempt in past], default=call.started_us)
    result = TaskResult(
        task=task,
        id=job_id.hex(),
        status=status,
        enqueued_at=enqueued_at(job_id),
        started_at=time_of(started_us),
        last_attempted_at=time_of(call.started_us),
        finished_at=time_of(ended_us),
        args=call.args,
        kwargs=call.kwargs,
        backend=task.backend,
        errors=errors,
        worker_ids=worker_ids,
    )
    change(result, _return_value=call.value)
    return result


def change(result: TaskResult, **values: object) -> None:
    """Change a result, as the backends of Django do: it is frozen for all others."""
    for name, value in values.items():
        object.__setattr__(result, name, value)


def enqueued_at(job_id: JobId) -> datetime | None:
    """Return when a job was enqueued, to the millisecond."""
    return time_of(created_us(job_id))


def time_of(at_us: int) -> datetime | None:
    """Return a time as Django has it; None for 0."""
    if not at_us:
        return None
    at = datetime.fromtimestamp(at_us / SECOND_US, UTC)
    return at if settings.USE_TZ else timezone.make_naive(at)


def _error_of(error: str, traceback: str, shown: str) -> TaskError:
    """Return a stored error; a traceback has the name of its class in full."""
    name = error.partition(":")[0]
    pattern = rf"^((?:\w+\.)*{re.escape(name)})(?=:|$)"
    path = [name, *re.findall(pattern, traceback, re.MULTILINE)][-1]
    if "." not in path:
        path = f"builtins.{path if hasattr(builtins, path) else 'Exception'}"
    return TaskError(exception_class_path=path, traceback=shown)


def read_call(value: object) -> Call | None:
    """Return the call that is stored as the result of a job; None if another program stored it."""
    try:
        return msgspec.convert(value, Call)
    except msgspec.ValidationError:
        return None


def unknown_task() -> None:
    """Stand for the task of a job of which only the outcome is stored."""


UNKNOWN_CALL = Call(
    task="", args=[], kwargs={}, queue="default", priority=0, run_after_us=None, started_us=0,
    attempts=0, worker="",
)  # fmt: skip
