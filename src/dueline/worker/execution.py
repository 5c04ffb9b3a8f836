"""Running one job's handler."""

import asyncio
import traceback
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from itertools import takewhile
from typing import NamedTuple

from dueline.attempt import Cancelled, Done, Ending, Failed, GivenBack, Snoozed
from dueline.clock import SECOND_US, duration_us
from dueline.codec import encode_result
from dueline.errors import BadInput, LeaseLost
from dueline.handler import Cancel, Context, Handler, Snooze
from dueline.job import Job, JobId

UNKNOWN_TASK_WAIT_US = 30 * SECOND_US
"""How long a job waits for a worker that knows its task, after one that does not claimed it."""

TRACEBACK_CHARACTERS_MAX = 16 * 1024


class Assignment(NamedTuple):
    """A job to run. keep: its result is wanted. alone: with nothing beside it in its process."""

    job: Job
    keep: bool
    alone: bool = False


def overtaking(coming: Sequence[Assignment], waiting: Sequence[Assignment]) -> int:
    """Count the first of what comes that are more urgent than all that wait.

    Both are in the order of urgency.
    """
    try:
        bar = waiting[0].job.lane.priority
    except IndexError:  # nothing waits, maybe since a moment ago
        return 0
    return sum(1 for _ in takewhile(lambda one: one.job.lane.priority > bar, coming))


class Execution:
    """Calls handlers and turns whatever happens in them into an Ending."""

    def __init__(self, handlers: Mapping[str, Handler], is_lost: Callable[[JobId], bool]) -> None:
        """Take the known handlers by name, and the way to ask whether a claim was lost."""
        self._handlers = handlers
        self._is_lost = is_lost

    def timeout_us(self, job: Job) -> int | None:
        """Tell how long the job's handler may run; None without a limit."""
        handler = self._handlers.get(job.task)
        return handler.timeout_us if handler else None

    def run(self, assignment: Assignment) -> Ending:
        """Call the handler of a job."""
        job = assignment.job
        handler = self._handlers.get(job.task)
        if handler is None:
            return GivenBack(UNKNOWN_TASK_WAIT_US)
        try:
            args, kwargs = handler.arguments.decode(job.body)
            if handler.takes_context:
                args = (Context(job, self._is_lost), *args)
            value = handler.function(*args, **kwargs)
            if handler.is_async:
                value = asyncio.run(value)
            return Done(encode_result(value, job.task) if assignment.keep else b"")
        except Snooze as snooze:
            return Snoozed(snooze.after_us)
        except Cancel as cancel:
            return Cancelled(cancel.message)
        except LeaseLost as lost:
            return Cancelled(lost.message)  # its verdict is refused, so nothing comes of it
        except BaseException as error:  # noqa: BLE001  (SystemExit in a handler is a failure too)
            return failure(error, handler)


def failure(error: BaseException, handler: Handler) -> Failed:
    """Describe an exception: locals never, the traceback cut to its innermost part."""
    lines = "".join(traceback.format_exception(error))
    # Arguments that do not fit, and results that cannot be written, fail alike every time.
    retry = handler.retry.wants(error) and not isinstance(error, BadInput)
    return Failed(
        type(error).__name__,
        _text_of(error),
        lines[-TRACEBACK_CHARACTERS_MAX:],
        retry,
        _retry_after_us(error),
    )


def _text_of(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001  (an error whose __str__ fails is still one to report)
        return "(its text cannot be had)"


def _retry_after_us(error: BaseException) -> int | None:
    wait = getattr(error, "retry_after", None)
    if isinstance(wait, (int, float, timedelta)) and not isinstance(wait, bool):
        wait_us = duration_us(wait)
        return wait_us if wait_us >= 0 else None
    return None
