"""Calls one job's handler."""

import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    ExitStack,
    asynccontextmanager,
    contextmanager,
)
from contextvars import Context as Variables
from types import FrameType
from typing import Any

from dueline.core.attempt import Cancelled, Ending, Expired, Failed, GivenBack, Settled, Snoozed
from dueline.core.call_options import is_past, terms_of
from dueline.core.clock import SECOND_US
from dueline.core.errors import JobTimeout, LeaseLost
from dueline.core.job import Claim, Job
from dueline.core.logging import log
from dueline.core.retry import WAIT_US_MAX
from dueline.core.user_code import Raised, contain, raise_interrupt, text_of
from dueline.durable.suspension import Suspended
from dueline.tasks.batch_handler import BatchHandler
from dueline.tasks.failures import failure
from dueline.tasks.handler import (
    Context,
    Handler,
    Middleware,
)
from dueline.tasks.hooks import Hooks
from dueline.tasks.raised import Cancel, Snooze, Throttled
from dueline.tasks.watching import FunctionWatch
from dueline.worker.assignment import NULL, Assignment, done_with, fitting
from dueline.worker.batch_execution import BatchRun
from dueline.worker.context_controls import CANCELLED, Controls
from dueline.worker.hook_events import ran_event, run_event
from dueline.worker.job_lines import JobLines

UNKNOWN_TASK_WAIT_US = 30 * SECOND_US
"""How long a job is deferred if the process that runs it does not know its task or codec."""

ASYNC_GRACE_US = SECOND_US
"""A coroutine is cancelled at its limit, and interrupted this much later if it does not await."""

LOST_AFTER_US = SECOND_US
"""How long after it was first interrupted a handler that goes on has outlived its limit."""

_REQUESTS = (Snooze, Cancel, LeaseLost, Suspended)
"""Exceptions by which a handler requests an ending other than a failure."""

_Plain = tuple[Callable[[bytes], Sequence[Any]], Callable[..., object], Handler]


def _plain(handler: Handler | None) -> _Plain | None:
    """Return what is needed to call a handler that takes only its arguments; None for others."""
    if handler is None or handler.is_async or handler.takes_context:
        return None
    if isinstance(handler, BatchHandler):
        return None
    if handler.middleware or handler.logs != "off":
        return None
    if handler.timeout_us is not None:  # an interrupt needs to know when the handler runs
        return None
    read = handler.arguments.plain_reader()
    return None if read is None else (read, handler.function, handler)


def _never() -> bool:
    return False


def _expect_time(is_late: Callable[[], bool]) -> None:
    """Raise if the time limit has passed: what a handler returns afterwards does not count."""
    if is_late():
        raise JobTimeout


class Execution:
    """Calls handlers, and turns what happens into an Ending."""

    def __init__(self, handlers: Mapping[str, Handler], hooks: Hooks | None = None) -> None:
        self._handlers = handlers
        self._plain: dict[str, _Plain | None] = {}
        self._hooks = hooks or Hooks()
        self.controls = Controls()
        self.watch = FunctionWatch(self._hooks)
        self._lines = JobLines(job_here)

    def timeout_us(self, job: Job) -> int | None:
        """Return after what time the job's handler is interrupted; None without a limit."""
        return interrupted_after_us(job, self._handlers.get(job.task))

    def limit_us(self, job: Job) -> int | None:
        """Return the time limit of a job; None without one."""
        handler = self._handlers.get(job.task)
        return None if handler is None else _limit_us(job, handler)

    def package_of(self, job: Job) -> str:
        """Return the top-level package of the job's handler."""
        module = getattr(self._handlers[job.task].body, "__module__", None)
        return str(module).partition(".")[0]

    def is_async(self, assignment: Assignment) -> bool:
        """Return whether the job's handler is a coroutine function."""
        handler = self._handlers.get(assignment.job.task)
        return handler is not None and handler.is_async

    def has_async(self) -> bool:
        """Return whether some handler is a coroutine function."""
        return any(handler.is_async for handler in self._handlers.values())

    def run(
        self, assignment: Assignment, started_us: int, is_late: Callable[[], bool] = _never
    ) -> Ending:
        """Call the handler of a job that starts now.

        A coroutine gets an event loop of its own; see `arun`.

        Args:
            assignment: The job.
            started_us: The store's time.
            is_late: Returns whether its time limit has passed. Then it has failed, whatever it
                returned.
        """
        handler = self._handlers.get(assignment.job.task)
        if handler is not None and handler.is_async:
            ending = contain(self._run_on_loop, assignment, started_us)
            if isinstance(ending, Raised):  # by a task that the handler started
                return self.ending_of(ending.error, handler, assignment.job)
            return ending
        if handler is None:
            return GivenBack(UNKNOWN_TASK_WAIT_US)
        # Context variables that a handler or hook sets end with the job.
        if handler.logs == "off":
            return Variables().run(self._run, assignment, handler, started_us, is_late)
        with self._lines.of(assignment.job.claim()) as lines:
            ending = Variables().run(self._run, assignment, handler, started_us, is_late)
        return lines.with_ending(ending, handler.logs)

    def _run_on_loop(self, assignment: Assignment, started_us: int) -> Ending:
        import asyncio  # noqa: PLC0415  (slow to load, and rarely needed)

        return asyncio.run(self.arun(assignment, started_us))

    def _run(
        self,
        assignment: Assignment,
        handler: Handler,
        started_us: int,
        is_late: Callable[[], bool],
    ) -> Ending:
        if isinstance(handler, BatchHandler):
            return self._run_batch(assignment, handler, started_us, is_late)
        context = None
        try:
            if (refusal := self.begin(assignment, started_us)) is not None:
                return refusal
            context = self._context(assignment, handler, started_us)
            wrapping = self._wrapping(handler)
            if context is None or not wrapping:
                ending = _called(assignment, handler, context, is_late)
            else:
                ending = done_with(assignment, handler, context, None)  # if an error is suppressed
                with entered(wrapping, context):
                    ending = _called(assignment, handler, context, is_late)
                _expect_time(is_late)
        except BaseException as error:  # noqa: BLE001  (SystemExit in a handler is a failure too)
            ending = self.ending_of(error, handler, assignment.job)
        if context is None and not self._hooks.has_run_hooks:
            return ending
        return self.end(assignment.job, context, ending)

    async def arun(self, assignment: Assignment, started_us: int) -> Ending:
        """Await the coroutine handler of a job that starts now."""
        handler = self._handlers[assignment.job.task]
        if handler.logs == "off":
            return await self._arun(assignment, handler, started_us)
        with self._lines.of(assignment.job.claim()) as lines:
            ending = await self._arun(assignment, handler, started_us)
        return lines.with_ending(ending, handler.logs)

    async def _arun(self, assignment: Assignment, handler: Handler, started_us: int) -> Ending:
        job = assignment.job
        if isinstance(handler, BatchHandler):
            return await self._arun_batch(assignment, handler, started_us)
        context = None
        try:
            if (refusal := self.begin(assignment, started_us)) is not None:
                return refusal
            context = self._context(assignment, handler, started_us)
            call = self._acall(assignment, handler, context)
            is_durable = handler.is_durable
            limit_us = _limit_us(job, handler)
            ending = await self._within(call, limit_us, job.claim(), is_durable=is_durable)
        except BaseException as error:  # noqa: BLE001  (see above)
            ending = self.ending_of(error, handler, job)
        return self.end(job, context, ending)

    async def _acall(
        self, assignment: Assignment, handler: Handler, context: Context | None
    ) -> Ending:
        wrapping = self._wrapping(handler)
        if context is None or not wrapping:
            return await _awaited(assignment, handler, context)
        async with aentered(wrapping, context):
            return await _awaited(assignment, handler, context)
        return done_with(assignment, handler, context, None)  # an error was suppressed

    def _wrapping(self, handler: Handler) -> tuple[Middleware, ...]:
        """Return what wraps the calls of a handler, outermost first."""
        return self._hooks.middleware + handler.middleware

    def _run_batch(
        self,
        assignment: Assignment,
        handler: BatchHandler,
        started_us: int,
        is_late: Callable[[], bool],
    ) -> Ending:
        self.begin_batch(assignment)
        run = BatchRun(self, assignment, handler, started_us)
        try:
            if run.calls:
                value = None  # if an error is suppressed
                with entered(self._wrapping(handler), run.calls[0]):
                    value = handler.function(run.calls)
                _expect_time(is_late)
                run.take(value)
        except BaseException as error:  # noqa: BLE001  (see above)
            run.fail(error)
        return run.ending()

    async def _arun_batch(
        self, assignment: Assignment, handler: BatchHandler, started_us: int
    ) -> Ending:
        self.begin_batch(assignment)
        run = BatchRun(self, assignment, handler, started_us)
        try:
            if run.calls:
                call = self._acall_batch(run, handler)
                run.take(await self._within(call, handler.timeout_us, assignment.job.claim()))
        except BaseException as error:  # noqa: BLE001  (see above)
            run.fail(error)
        return run.ending()

    async def _acall_batch(self, run: BatchRun, handler: BatchHandler) -> object:
        async with aentered(self._wrapping(handler), run.calls[0]):
            return await handler.function(run.calls)
        return None  # an error was suppressed

    def begin(self, assignment: Assignment, now_us: int) -> Ending | None:
        """Return how a job ends without a call of its handler; None if it is called now."""
        if self.controls.has_expired(assignment, now_us):
            return GivenBack()
        is_durable = self._handlers[assignment.job.task].is_durable
        if not is_durable and self.controls.has_cancelled(assignment.job):
            return Cancelled(CANCELLED)
        if not is_durable and assignment.job.opts and is_past(assignment.job, now_us):
            return Expired()
        if (codec := assignment.job.codec) and not self._handlers[assignment.job.task].reads(codec):
            return GivenBack(UNKNOWN_TASK_WAIT_US)
        if self._hooks.has("before_run"):
            self._hooks.call("before_run", run_event(assignment.job))
        return None

    def begin_batch(self, assignment: Assignment) -> None:
        """Do nothing; child processes report here that a batch handler is about to be called."""

    def run_plainly(self, assignment: Assignment, now_us: int) -> Ending | None:
        """Call a plain function at the least cost.

        Args:
            assignment: The job.
            now_us: The store's time.

        Returns:
            How it ended; None if the job needs `run`, and nothing was called.
        """
        job = assignment.job
        is_doubtful = now_us > job.at_us or assignment.start_by_us
        if is_doubtful and self.controls.has_expired(assignment, now_us):
            return None
        if job.opts or job.codec or self._hooks.has_run_hooks or self._hooks.middleware:
            return None
        if self.controls.cancelled and self.controls.has_cancelled(job):
            return None
        try:
            plain = self._plain[job.task]
        except KeyError:
            plain = self._plain[job.task] = _plain(self._handlers.get(job.task))
        if plain is None:
            return None
        read, function, handler = plain
        try:
            args = read(job.body)
        except BaseException as error:  # noqa: BLE001  (`run` reports what is wrong with it)
            raise_interrupt(error)
            return None
        try:
            value = Variables().run(function, *args)
            if value is None and assignment.keep:
                return NULL
            return done_with(assignment, handler, None, value)
        except BaseException as error:  # noqa: BLE001  (see above)
            return self.ending_of(error, handler, job)

    def end(self, job: Job, context: Context | None, ending: Ending) -> Ending:
        """Call hooks with how a handler ended; return the ending."""
        if context is not None:
            ending = _settled(job, context, ending)
        if self._hooks.has("after_run"):
            self._hooks.call("after_run", ran_event(job, ending))
        return ending

    def _context(self, assignment: Assignment, handler: Handler, at_us: int) -> Context | None:
        if not (handler.takes_context or self._wrapping(handler)):
            return None
        kind = handler.context_class
        context = kind(assignment.job, self.controls, handler, assignment.last, started_us=at_us)
        if handler.is_durable:
            context.watched_by(self.watch)
        return context

    def ending_of(self, error: BaseException, handler: Handler, job: Job) -> Ending:
        """Return how an attempt ends whose handler raised.

        Raises:
            KeyboardInterrupt: Ctrl-C was pressed.
        """
        if type(error) is KeyboardInterrupt:
            raise_interrupt(error)
        if issubclass(type(error), _REQUESTS) or self.controls.cancelled or self.controls.stopped:
            ending = contain(self._requested, error, job.claim())
            if ending is not None and not isinstance(ending, Raised):
                return ending
        return failure(error, handler)

    def failed_outside(self, error: BaseException, job: Job) -> Ending:
        """Return how an attempt ended that raised outside its handler.

        This is a time limit that expired just after the handler returned, or a fault in dueline,
        which must not end the thread.
        """
        return failure(error, self._handlers[job.task])

    def _requested(self, error: BaseException, claim: Claim) -> Ending | None:
        """Return the ending that an exception requests; None if it is a failure."""
        if isinstance(error, Suspended):
            return error.ending
        if isinstance(error, Snooze):
            after_us = min(max(error.after_us, 0), WAIT_US_MAX)
            return Snoozed(after_us, isinstance(error, Throttled))
        if claim in self.controls.stopped and (
            isinstance(error, LeaseLost) or _is_cancellation(error)
        ):
            return GivenBack()
        if isinstance(error, Cancel | LeaseLost):  # nothing can be recorded after LeaseLost
            return Cancelled(text_of(error.message))
        if self.controls.is_cancelled(claim) and _is_cancellation(error):
            return Cancelled(CANCELLED)
        return None

    async def _within(
        self,
        value: Awaitable[Any],
        timeout_us: int | None,
        claim: Claim,
        *,
        is_durable: bool = False,
    ) -> Any:  # noqa: ANN401
        """Await a handler; cancel it at its time limit, or when its job is cancelled.

        is_durable: a cancel is delivered by the next call of its context.
        """
        import asyncio  # noqa: PLC0415  (see above)

        limit = asyncio.timeout(None if timeout_us is None else timeout_us / SECOND_US)
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None

        def stop() -> None:
            if not is_durable or claim in self.controls.stopped:
                loop.call_soon_threadsafe(task.cancel)

        try:
            with self.controls.stopping(claim, stop):
                async with limit:
                    returned = await value
        except (TimeoutError, asyncio.CancelledError, Suspended) as error:
            if limit.expired():
                raise JobTimeout from error
            raise
        if (until_s := limit.when()) is not None and loop.time() >= until_s:
            raise JobTimeout  # whatever it did with the cancellation
        return returned


def job_here() -> Job | None:
    """Return the job whose handler called this, from the frames of the thread; None outside.

    For log records: so that nothing is recorded at each call of a handler.
    """
    frame: FrameType | None = sys._getframe()  # noqa: SLF001  (public, but for its name)
    while frame is not None:
        if frame.f_code in _CALLERS:
            assignment: Assignment = frame.f_locals["assignment"]
            return assignment.job
        frame = frame.f_back
    return None


_CALLERS = frozenset(
    caller.__code__
    for caller in (Execution.run_plainly, Execution._run, Execution.arun)  # noqa: SLF001
)


def _is_cancellation(error: BaseException) -> bool:
    loaded = sys.modules.get("asyncio.exceptions")  # if it is not loaded, nothing was cancelled
    return isinstance(error, getattr(loaded, "CancelledError", ()))


def _limit_us(job: Job, handler: Handler) -> int | None:
    """Return the time limit of a job: that of its call, or its task's."""
    own_us = terms_of(job).timeout_us
    return handler.timeout_us if own_us is None else own_us


def interrupted_after_us(job: Job, handler: Handler | None) -> int | None:
    """Return after what time a job's handler is interrupted; None without a limit."""
    limit_us = None if handler is None else _limit_us(job, handler)
    if handler is None or limit_us is None:
        return None
    return limit_us + (ASYNC_GRACE_US if handler.is_async else 0)


def _called(
    assignment: Assignment,
    handler: Handler,
    context: Context | None,
    is_late: Callable[[], bool],
) -> Ending:
    args, kwargs = _arguments(assignment, handler, context)
    value = handler.function(*args, **kwargs)
    _expect_time(is_late)
    return done_with(assignment, handler, context, value)


async def _awaited(assignment: Assignment, handler: Handler, context: Context | None) -> Ending:
    if not handler.has_blobs:
        args, kwargs = _arguments(assignment, handler, context)
        return done_with(assignment, handler, context, await handler.function(*args, **kwargs))
    from asyncio import to_thread  # noqa: PLC0415  (reading and writing blobs would block the loop)

    args, kwargs = await to_thread(_arguments, assignment, handler, context)
    value = await handler.function(*args, **kwargs)
    return await to_thread(done_with, assignment, handler, context, value)


def _arguments(
    assignment: Assignment, handler: Handler, context: Context | None
) -> tuple[Sequence[Any], Mapping[str, Any]]:
    job = assignment.job
    args, kwargs = fitting(handler.read, job.codec, job.body, assignment.given)
    return (args if not handler.takes_context else (context, *args)), kwargs


@contextmanager
def entered(wrapping: Sequence[Middleware], context: Context) -> Iterator[None]:
    """Wrap a call of a plain function in its middleware."""
    with ExitStack() as stack:
        for wrapper in wrapping:
            stack.enter_context(wrapper(context))  # type: ignore[arg-type]  # raises TypeError itself
        yield


@asynccontextmanager
async def aentered(wrapping: Sequence[Middleware], context: Context) -> AsyncIterator[None]:
    """Wrap a call of a coroutine function in its middleware, asynchronous where it can be."""
    async with AsyncExitStack() as stack:
        for wrapper in wrapping:
            manager = wrapper(context)
            if isinstance(manager, AbstractAsyncContextManager):
                await stack.enter_async_context(manager)
            else:
                stack.enter_context(manager)
        yield


def _settled(job: Job, context: Context, ending: Ending) -> Ending:
    """Return Settled for a job that its handler ended itself, whatever the handler did then.

    A durable function has decided itself how its attempt ends.
    """
    ending = context.ending_after(ending)
    if not context.is_settled:
        return ending
    if isinstance(ending, Failed):
        log.warning("job=%s raised after it was done:\n%s", job.id.hex(), ending.traceback)
    return Settled()
