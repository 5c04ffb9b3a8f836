"""The context of durable functions: the calls whose results are recorded."""

import uuid
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from random import Random
from typing import Annotated, Any, Final, NoReturn, cast

from dueline.core.attempt import Ending
from dueline.core.clock import asked_span_us, to_datetime
from dueline.core.constraints import check_value, integer
from dueline.core.errors import BadInput
from dueline.core.job import Job
from dueline.core.retry import Retry
from dueline.core.store import Put
from dueline.core.store_capabilities import flush_claims
from dueline.durable import calls, ends, gathers, restarts, waits
from dueline.durable.activation import Activation
from dueline.durable.calls import CallableTask, Planned
from dueline.durable.driving import Call, Part, drive
from dueline.durable.log import key_of
from dueline.durable.names import STATE, check_name
from dueline.durable.positions import Line
from dueline.durable.rehearsal import Rehearsal
from dueline.durable.steps import StepTerms, name_of, step
from dueline.durable.values import ValueHandler
from dueline.jobs.function_list import inbox_of
from dueline.tasks.handler import Context, Handler
from dueline.tasks.progress import Control, Progress
from dueline.tasks.watching import FunctionWatch

_Limit: Final = Annotated[int, integer(1, 1_000_000)]


class DurableContext(Context):
    """The job of a durable function, and the calls whose results are recorded.

    In a coroutine function, await `step`, `sleep` and `wait_signal`. Make calls one after the
    other. Code between calls runs again at each replay: it must not read clocks, randomness or
    anything else that changes; `now`, `random` and `uuid` are the same at each replay.
    """

    __slots__ = ("_run", "_terms")

    def __init__(
        self,
        job: Job,
        control: Control,
        handler: Handler,
        last_progress: Progress | None = None,
        *,
        started_us: int = 0,
    ) -> None:
        super().__init__(job, control, handler, last_progress, started_us=started_us)
        durable = cast("ValueHandler", handler)
        self._run = Activation(durable.engine(), job, durable, control)

    def emit(self, chunk: object) -> NoReturn:
        """Refuse: a replay would emit again.

        Raises: BadInput: always.
        """
        del chunk
        raise BadInput(
            "A durable function cannot emit chunks: a replay would emit them again.",
            hint="Call a task that emits, or note where it is with `ctx.state`.",
        )

    # The calls

    def step(
        self,
        function: Callable[..., Any],
        /,
        *args: Any,  # noqa: ANN401
        name: str | None = None,
        retry: Retry | None = None,
        timeout: timedelta | float | None = None,
        raises: type[Exception] | Sequence[type[Exception]] = (),
        undo: Callable[[Any], Any] | None = None,
        undo_if_unknown: bool = False,
        once: bool = False,
        **kwargs: Any,  # noqa: ANN401
    ) -> Any:  # noqa: ANN401  (of any type, or an awaitable)
        """Call a function once and record its result; a replay returns the record.

        The function may run again if its worker dies while it runs.

        Args:
            function: The function; in coroutine functions also a coroutine function.
            *args: Its positional arguments.
            name: Name of the step; by default that of the function.
            retry: How its errors are retried; by default as those of the durable function.
            timeout: Duration after which an attempt fails; a timedelta or seconds. A plain
                function is left running in its thread.
            raises: Classes of errors that are raised again as themselves, made from their text.
            undo: Called with the result if the durable function fails, is cancelled or expires.
            undo_if_unknown: Also undo it, with None, if it is not known whether it ran.
            once: Start it at most once; StepLost is raised if it is not known how it ended.
            **kwargs: Its named arguments.

        Returns:
            What the function returned, as its annotation reads the stored form.

        Raises:
            StepFailed: It failed for good.
            Cancel: The end of the durable function was requested.
            BadInput: The call comes from another task or thread, or has no name.
        """
        known = (raises,) if isinstance(raises, type) else tuple(raises)
        limit_us = None if timeout is None else asked_span_us(timeout, "timeout")
        own = name_of(function, name)
        if not self._run.handler.is_async and _is_coroutine_function(function):
            raise BadInput(
                f"The step {own} is a coroutine function, but {self.task} is not.",
                hint="Make the durable function a coroutine function.",
            )
        terms = StepTerms(
            own, function, args, kwargs, retry, limit_us, known, undo, undo_if_unknown, once
        )
        digest = self._run.handler.digest_of(args, kwargs)
        return self._call(own, lambda key: step(self._run, key, terms), digest=digest)

    def sleep(self, duration: timedelta | float) -> Any:  # noqa: ANN401  (None, or an awaitable)
        """Wait; the function holds no slot meanwhile.

        Args:
            duration: A timedelta or seconds, up to ten years.
        """
        wait_us = asked_span_us(duration, "duration")
        return self._call("sleep", lambda key: waits.sleep(self._run, key, wait_us))

    def wait_signal(
        self,
        name: str,
        *,
        timeout: timedelta | float | None = None,
        default: Any = waits.NEVER,  # noqa: ANN401
        type: Any = Any,  # noqa: A002, ANN401
    ) -> Any:  # noqa: ANN401  (of any type, or an awaitable)
        """Wait for the oldest unread signal of a name, which `job.signal(name, value)` sends.

        Args:
            name: Name of the signal.
            timeout: Maximum wait; None for ever.
            default: What is returned after the time-out.
            type: Annotation by which the value is read.

        Returns:
            The value of the signal.

        Raises:
            TimeoutError: The time is over, and there is no default.
            Cancel: The end of the durable function was requested.
        """
        check_name(name, "signal")
        limit_us = None if timeout is None else asked_span_us(timeout, "timeout")
        terms = waits.SignalTerms(name, limit_us, default, type)
        return self._call(
            f"wait_signal({name})",
            lambda key: waits.signal(self._run, key, terms),
        )

    def state(self, value: Any) -> Any:  # noqa: ANN401  (None, or an awaitable)
        """Set what `job.state` shows; it is not part of the log, and skipped at a replay.

        In a coroutine function, await it: the next call, or the end, refuses it otherwise.

        Args:
            value: A plain value.
        """
        if self._run.suspension is not None:
            raise self._run.suspension
        line = self._run.line
        line.unset += 1
        return self._drive(self._set_state(value, line))

    def _set_state(self, value: object, line: Line) -> Generator[Part, Any, None]:
        run = self._run
        line.unset -= 1
        if key_of(run.line.next_path) in run.log.entries or run.end is not None:
            return
        stored = run.handler.write_value(value, "state")
        put = Put(STATE, run.engine.ids.token(), bytes([stored.codec]) + stored.data)
        run.check()
        yield from run.blocking(run.log.expect_listed)
        yield from run.blocking(lambda: run.engine.store.commit(inbox_of(run.job.id), (put,)))

    # Calls of other tasks

    def call(
        self,
        task: CallableTask,
        /,
        *args: Any,  # noqa: ANN401
        wait: bool = True,
        **kwargs: Any,  # noqa: ANN401
    ) -> Any:  # noqa: ANN401  (a result, a CalledJob, or an awaitable)
        """Call a task or another durable function: a job that any worker runs, stored once.

        The function waits without a slot until the job has ended. The job goes on if the function
        is cancelled.

        Args:
            task: The task, or one with options: `task.using(priority=5)`.
            *args: Positional arguments of the task.
            wait: False returns a CalledJob at once, with `result()`.
            **kwargs: Named arguments of the task.

        Returns:
            The result of the job.

        Raises:
            CallFailed: The job is dead, cancelled, expired or lost.
            Cancel: The end of the durable function was requested.
            BadInput: The arguments do not fit, an option does not apply, or functions call each
                other more than 100 deep.
        """
        child = calls.child_of(task, args, kwargs)
        name, run = f"call({child.task})", self._run
        key = run.take(name)
        run.line.digest = run.handler.digest_of(args, kwargs)
        begun = run.guarded(calls.call(run, key, child), name)
        return self._drive(self._result_of(begun) if wait else self._handle_of(begun))

    def gather(
        self,
        planned: Iterable[Planned],
        /,
        *,
        limit: int | None = None,
        return_exceptions: bool = False,
    ) -> Any:  # noqa: ANN401  (a list, or an awaitable)
        """Call many tasks at once, and wait until all of them have ended.

        Args:
            planned: The calls, such as `[label.call(p) for p in parcels]`; up to 10,000.
            limit: Maximum number of their jobs that run at the same time.
            return_exceptions: Return the CallFailed of calls in place of their results; by default,
                the first of them is raised.

        Returns:
            The list of the results, in the order of the calls.

        Raises:
            CallFailed: A job is dead, cancelled, expired or lost.
            Cancel: The end of the durable function was requested.
            BadInput: As `call`, or there are more than 10,000 calls or 16 MiB of results.
        """
        children = [calls.planned(call) for call in planned]
        gathers.check_size(children)
        if limit is not None:
            check_value(limit, _Limit, "limit")
        run = self._run
        begun = run.guarded(gathers.gather(run, run.take("gather"), children, limit), "gather")
        return self._drive(self._gathered(begun, returns_errors=return_exceptions))

    def _gathered(self, begun: Call[gathers.Gathered], *, returns_errors: bool) -> Call[list[Any]]:
        run = self._run
        known = yield from begun
        waits_for = gathers.results(run, run.take("gather"), known, returns_errors=returns_errors)
        return (yield from run.guarded(waits_for, "gather"))

    def result_of(self, called: calls.Called) -> Any:  # noqa: ANN401  (of any type, or an awaitable)
        """Wait for the end of a call; `CalledJob.result` does it."""
        run, name = self._run, f"result({called.task})"
        return self._drive(run.guarded(calls.result(run, run.take(name), called), name))

    def _result_of(self, begun: Call[calls.Called]) -> Call[Any]:
        return (yield from self._awaited((yield from begun)))

    def _handle_of(self, begun: Call[calls.Called]) -> Call["CalledJob"]:
        return CalledJob(self, (yield from begun))

    def _awaited(self, called: calls.Called) -> Call[Any]:
        run, name = self._run, f"result({called.task})"
        return (yield from run.guarded(calls.result(run, run.take(name), called), name))

    def restart_with(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401  (never returns)
        """Run the function again from its beginning, with other arguments and an empty log.

        For loops without end. It ends the function's run: write nothing after it. Compensations
        that were registered are forgotten, and unread signals stay.

        Args:
            *args: Positional arguments of the function.
            **kwargs: Named arguments of the function.

        Raises:
            Cancel: The end of the durable function was requested.
            BadInput: The arguments do not fit.
        """
        return self._call(
            "restart_with", lambda key: restarts.restart(self._run, key, args, kwargs)
        )

    def patched(self, name: str) -> bool:
        """Return whether to run changed code: False in a run that is older than the change.

        Write `if ctx.patched("refund-v2"): ... else: ...`, and delete the old branch once no
        unfinished function is older. It is not awaited, also in coroutine functions.

        Args:
            name: Name of the change.

        Raises:
            BadInput: It cannot be a name.
        """
        check_name(name, "patch")
        return restarts.patched(self._run, name)

    # What is the same at each replay

    def now(self) -> datetime:
        """Return the time of the last record, in UTC."""
        return to_datetime(self._run.line.at_us)

    def random(self) -> Random:
        """Return a source of chance, derived from the job and the position."""
        return self._run.random()

    def uuid(self) -> uuid.UUID:
        """Return a UUID that is derived from the job and the position."""
        return uuid.UUID(bytes=self._run.seed())

    @property
    def fence(self) -> int:
        """How often the job was claimed; durable once it is read (rule P8)."""
        flush_claims(self._run.engine.store)
        return super().fence

    @property
    def key(self) -> str:
        """An idempotency key for outside calls of the next step, or of the one that runs."""
        return self._run.key()

    # Used by the handler and the worker

    def _call(self, name: str, body: Callable[[str], Call[Any]], *, digest: str = "") -> Any:  # noqa: ANN401
        run = self._run
        key = run.take(name)
        run.line.digest = digest
        return self._drive(run.guarded(body(key), name))

    def _drive(self, call: Call[Any]) -> Any:  # noqa: ANN401
        if not self._run.handler.is_async:
            return drive(call)
        from dueline.durable.async_driving import adrive  # noqa: PLC0415  (loads asyncio)

        return adrive(call, self._run.handler.shared())

    def run(self, body: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:  # noqa: ANN401
        """Run a plain function from its beginning, by its log."""
        run = self._run
        drive(ends.begin(run))
        run.line = Line(run.job.enqueued_us)
        args, kwargs = drive(restarts.arguments_of(run, args, kwargs))
        try:
            value = body(self, *args, **kwargs)
        except BaseException as error:
            drive(ends.failed(run, error))
            raise
        return drive(ends.returned(run, value))

    async def arun(
        self, body: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Any:  # noqa: ANN401
        """Run a coroutine function from its beginning, by its log."""
        from dueline.durable.async_driving import adrive  # noqa: PLC0415  (loads asyncio)

        run, shared = self._run, self._run.handler.shared()
        await adrive(ends.begin(run), shared)
        run.line = Line(run.job.enqueued_us)
        args, kwargs = await adrive(restarts.arguments_of(run, args, kwargs), shared)
        try:
            value = await body(self, *args, **kwargs)
        except BaseException as error:
            await adrive(ends.failed(run, error), shared)
            raise
        return await adrive(ends.returned(run, value), shared)

    def rehearse(self, rehearsal: Rehearsal) -> None:
        """Run the function as a test says."""
        self._run.rehearsal = rehearsal

    def watched_by(self, watch: FunctionWatch) -> None:
        """Count what the function does, and make spans of its steps."""
        self._run.watch = watch

    def ending_after(self, ending: Ending) -> Ending:
        """Return how the attempt ends."""
        return ends.ending_after(self._run, ending)


class CalledJob:
    """A job that a durable function called with `wait=False`.

    Attributes:
        job_id: Id of the job, 16 bytes.
    """

    __slots__ = ("_called", "_context")

    def __init__(self, context: DurableContext, called: calls.Called) -> None:
        self._context, self._called = context, called

    @property
    def job_id(self) -> bytes:
        """Id of the job, 16 bytes."""
        return self._called.job_id

    def result(self) -> Any:  # noqa: ANN401  (of any type, or an awaitable)
        """Wait for the end of the job; see `DurableContext.call`."""
        return self._context.result_of(self._called)


def _is_coroutine_function(function: object) -> bool:
    from inspect import iscoroutinefunction  # noqa: PLC0415  (one use)

    return iscoroutinefunction(function)
