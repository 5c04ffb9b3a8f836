"""Running one job's handler."""

import asyncio
import traceback
from collections.abc import Awaitable, Mapping, Sequence
from datetime import timedelta
from itertools import takewhile
from typing import Any, NamedTuple

from dueline.attempt import Cancelled, Done, Ending, Failed, GivenBack, Settled, Snoozed
from dueline.clock import SECOND_US, duration_us
from dueline.codec import encode_result
from dueline.errors import BadInput, JobTimeout, LeaseLost
from dueline.handler import Cancel, Context, Handler, Snooze
from dueline.job import Claim, Job
from dueline.policy import WAIT_US_MAX
from dueline.progress import Progress
from dueline.worker.controls import CANCELLED, Controls
from dueline.worker.log import log

UNKNOWN_TASK_WAIT_US = 30 * SECOND_US
"""How long a job waits for a worker that knows its task, after one that does not claimed it."""

TRACEBACK_CHARACTERS_MAX = 16 * 1024

ASYNC_GRACE_US = SECOND_US
"""An async handler is cancelled at its limit; so much later it is interrupted like any other."""

_DONE = Done(b"")


class Assignment(NamedTuple):
    """A job to run. keep: its result is wanted. alone: with nothing beside it in its process.

    last: what an earlier attempt said of its progress.
    firm: nothing overtakes it any more, since its wait may have made it the most urgent.
    """

    job: Job
    keep: bool
    alone: bool = False
    last: Progress | None = None
    firm: bool = False


def overtaking(coming: Sequence[Assignment], waiting: Sequence[Assignment]) -> int:
    """Count the first of what comes that are more urgent than all that wait.

    Both are in the order of urgency.
    """
    try:
        bar = waiting[0].job.lane.priority
        if waiting[0].firm:
            return 0
    except IndexError:  # nothing waits, maybe since a moment ago
        return 0
    return sum(1 for _ in takewhile(lambda one: one.job.lane.priority > bar, coming))


class Execution:
    """Calls handlers and turns whatever happens in them into an Ending."""

    def __init__(self, handlers: Mapping[str, Handler]) -> None:
        """Take the known handlers by name."""
        self._handlers = handlers
        self.controls = Controls()

    def timeout_us(self, job: Job) -> int | None:
        """Tell after what time the job's handler is interrupted; None without a limit."""
        handler = self._handlers.get(job.task)
        if handler is None or handler.timeout_us is None:
            return None
        return handler.timeout_us + (ASYNC_GRACE_US if handler.is_async else 0)

    def run(self, assignment: Assignment, started_us: int) -> Ending:
        """Call the handler of a job, from now on by the store's time."""
        job = assignment.job
        handler = self._handlers.get(job.task)
        if handler is None:
            return GivenBack(UNKNOWN_TASK_WAIT_US)
        if self.controls.is_cancelled(job.claim()):
            return Cancelled(CANCELLED)
        if not handler.takes_context:
            return self._call(assignment, handler, None)
        context = Context(job, self.controls, handler, assignment.last, started_us=started_us)
        ending = self._call(assignment, handler, context)
        if not context.is_settled:
            return ending
        if isinstance(ending, Failed):
            log.warning("job=%s raised after it was done:\n%s", job.id.hex(), ending.traceback)
        return Settled()

    def _call(self, assignment: Assignment, handler: Handler, context: Context | None) -> Ending:
        job = assignment.job
        claim = job.claim()
        try:
            args, kwargs = handler.arguments.decode(job.body)
            if context is not None:
                args = (context, *args)
            value = handler.function(*args, **kwargs)
            if handler.is_async:
                value = asyncio.run(self._within(value, handler.timeout_us, claim))
            if not assignment.keep or (context is not None and context.is_settled):
                return _DONE
            return Done(encode_result(value, job.task))
        except Snooze as snooze:
            return Snoozed(snooze.after_us)
        except Cancel as cancel:
            return Cancelled(_readable(cancel.message))
        except LeaseLost as lost:
            return Cancelled(lost.message)  # its verdict is refused, so nothing comes of it
        except asyncio.CancelledError as error:
            if self.controls.is_cancelled(claim):
                return Cancelled(CANCELLED)
            return failure(error, handler)
        except BaseException as error:  # noqa: BLE001  (SystemExit in a handler is a failure too)
            return failure(error, handler)

    async def _within(self, value: Awaitable[Any], timeout_us: int | None, claim: Claim) -> Any:  # noqa: ANN401
        """Await a handler; cancel it when its time is over, or its end is wished for."""
        limit = asyncio.timeout(None if timeout_us is None else timeout_us / SECOND_US)
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None
        try:
            with self.controls.stopping(claim, lambda: loop.call_soon_threadsafe(task.cancel)):
                async with limit:
                    return await value
        except TimeoutError as error:
            if limit.expired():
                raise JobTimeout from error
            raise


def failure(error: BaseException, handler: Handler) -> Failed:
    """Describe an exception: locals never, the traceback cut to its innermost part."""
    lines = _readable("".join(traceback.format_exception(error)))
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
        return _readable(str(error))
    except Exception:  # noqa: BLE001  (an error whose __str__ fails is still one to report)
        return "(its text cannot be had)"


def _readable(text: str) -> str:
    """Replace lone surrogates, as in file names that are not UTF-8: no store can keep them."""
    return text.encode(errors="backslashreplace").decode()


def _retry_after_us(error: BaseException) -> int | None:
    try:
        wait = getattr(error, "retry_after", None)
        if isinstance(wait, (int, float, timedelta)) and not isinstance(wait, bool):
            wait_us = duration_us(wait)
            return wait_us if 0 <= wait_us <= WAIT_US_MAX else None
    except Exception:  # noqa: BLE001  (an attribute that fails, a number that is none: no wish)
        return None
    return None
