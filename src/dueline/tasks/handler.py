"""Handlers: registered functions, their Context, and what they may raise."""

import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from datetime import datetime, timedelta
from typing import Annotated, Any, Final, Literal, NoReturn, Protocol, TypeVar, get_type_hints

from dueline.core.attempt import Cancelled, Done, Ending, Failed, Uncertain
from dueline.core.call_options import headers_of
from dueline.core.clock import to_datetime
from dueline.core.codec import unknown_kind
from dueline.core.constraints import check_value, integer
from dueline.core.engine import Engine
from dueline.core.errors import BadInput, JobTimeout, LeaseLost
from dueline.core.job import Claim, Job
from dueline.core.lane import tenant_of
from dueline.core.limit_costs import checked_units, costs_of
from dueline.core.limit_names import limits_of_call, read_limits, semaphore_of
from dueline.core.logging import log
from dueline.core.requirements import Requirements
from dueline.core.retry import ATTEMPTS_MAX, Retry
from dueline.core.user_code import name_of, text_of
from dueline.core.worker_needs import read_needs
from dueline.tasks.arguments import Arguments
from dueline.tasks.chunks import emit, expect_no_chunks
from dueline.tasks.context_parameter import takes_first
from dueline.tasks.failure_limits import Failures, check_pause
from dueline.tasks.handler_codec import HandlerCodec
from dueline.tasks.middleware import read_middleware
from dueline.tasks.payload_codecs import Payloads
from dueline.tasks.progress import (
    NO_TOTAL,
    Control,
    NoControl,
    Progress,
    ProgressReport,
    meta_of,
    read_meta,
    report_of,
)
from dueline.tasks.raised import Cancel, RetryRequested, asked_wait_us
from dueline.tasks.sections import Section, marks_of

T = TypeVar("T")

_Attempts: Final = Annotated[int, integer(1, ATTEMPTS_MAX)]

Join = Callable[[object, str], "Finishing"]
"""Gives the transaction of an object that a handler passes, for a queue."""


class Finishing(Protocol):
    """A transaction that can finish a job: see `app.transaction()`."""

    @property
    def is_open(self) -> bool:
        """Whether its block has not ended."""
        ...

    @property
    def is_committed(self) -> bool:
        """Whether it was committed."""
        ...

    def finish(
        self,
        job: Job,
        handler: "Handler",
        value: object,
        started_us: int,
        report: ProgressReport | None,
    ) -> None:
        """Finish the job as done, with the last report of this attempt, or raise LeaseLost."""
        ...

    async def afinish(
        self,
        job: Job,
        handler: "Handler",
        value: object,
        started_us: int,
        report: ProgressReport | None,
    ) -> "Finishing":
        """Finish like `finish`, on an asynchronous connection; return its transaction."""
        ...


_NONE_YET = Progress(0, NO_TOTAL, "", 0)


class Context:
    """The job of a handler; passed to a first parameter with this annotation, and to middleware.

    job_id: 16 bytes, the same in every attempt: an idempotency key for other systems. attempt: 1
    for the first. last_progress: the last `progress` of an
    earlier attempt, or None.
    """

    __slots__ = (
        "_control",
        "_emission",
        "_finishing",
        "_handler",
        "_job",
        "_reported",
        "_said",
        "_section",
        "_started_us",
        "attempt",
        "job_id",
        "last_progress",
        "queue",
        "task",
    )

    def __init__(
        self,
        job: Job,
        control: Control,
        handler: "Handler",
        last_progress: Progress | None = None,
        *,
        started_us: int = 0,
    ) -> None:
        self.job_id = job.id
        self.attempt = job.errors + 1
        self.task = job.task
        self.queue = job.lane.queue
        last = last_progress or _NONE_YET
        self.last_progress = last if last.is_reported else None
        self._said = ProgressReport(last.done, last.total, last.note, last.meta)
        self._reported: ProgressReport | None = None  # in this attempt
        self._control = control
        self._job = job
        self._handler = handler
        self._started_us = started_us
        self._finishing: Finishing | None = None
        self._section: Section | None = None

    @property
    def due(self) -> datetime:
        """When the job was due, in UTC; for a job of a schedule, the time of its occurrence.

        Retries, jitter and late starts do not change it. After `Job.reschedule`, or a retry by hand
        before that time, it is the new time.
        """
        return to_datetime(self._job.due_us)

    @property
    def tenant(self) -> str:
        """The tenant of the job; empty without one."""
        return tenant_of(self._job.lane)

    @property
    def priority(self) -> int:
        """The priority of the job."""
        return self._job.lane.priority

    @property
    def headers(self) -> dict[str, str]:
        """The headers of the call, see `task.using(headers=...)`; a copy."""
        return headers_of(self._job)

    @property
    def is_cancelled(self) -> bool:
        """Whether the handler must end: see `check_cancelled`."""
        control, claim = self._control, self._claim
        return control.is_cancelled(claim) or control.is_lost(claim) or control.is_overdue(claim)

    def check_cancelled(self) -> None:
        """Raise if the handler must end; do not catch the exception.

        Raises:
          LeaseLost: the claim ended, and another worker may hold the job; or the worker stops.
          JobTimeout: the handler runs longer than its `timeout`.
          Cancel: the cancellation of the job was requested.
        """
        self._expect_time()
        if self._control.is_cancelled(self._claim):
            raise Cancel("Its end was asked for.")

    def retry(
        self, *, after: timedelta | float | None = None, attempts: int | None = None
    ) -> NoReturn:
        """Fail this attempt and retry the job, whatever `on` of its policy says.

        Do not catch the exception that this raises. In an `except` block, the job keeps the
        caught error as the reason. When the attempts are used up, the job becomes a dead-letter
        job; use `raise Snooze(...)` to run again without spending an attempt.

        Args: after: wait, a timedelta or seconds; by default as the policy says. attempts: number
          of attempts after which this failure is the last, 1 to 100; by default as the policy says.

        Raises:
          RetryRequested: always.
          BadInput: the wait or the number is out of range.
        """
        raise self._retry_request(after, attempts)

    def _retry_request(
        self, after: timedelta | float | None, attempts: int | None
    ) -> RetryRequested:
        cause = sys.exception()
        reason = "" if cause is None else f" {name_of(cause)}: {text_of(cause)}".rstrip(": ")
        error = RetryRequested(f"The handler asked for a retry.{reason}")
        error.__cause__ = cause
        if after is not None:
            asked_wait_us(after, "after")
            error.retry_after = after
        if attempts is not None:
            check_value(attempts, _Attempts, "attempts")
            error.attempts = attempts
        return error

    def progress(self, done: float, total: float, note: str = "") -> None:
        """Report the progress of the job; callers see it within a second.

        This is cheap: another thread writes the last report every half second. The next attempt
        gets it as `last_progress`.

        Args: done, total: in a unit of your choice, 0 or more. note: up to 500 characters.

        Raises:
          BadInput: the arguments are not two numbers and a string.
          LeaseLost, JobTimeout: as `check_cancelled`. Do not catch them.
        """
        self._expect_time()
        said = report_of(done, total, note)
        self._report(said._replace(meta=self._said.meta, spent=self._said.spent))

    def emit(self, chunk: object) -> None:
        """Add a partial result, which readers of `job.chunks()` see within half a second.

        This is cheap: another thread writes the chunks of a tenth of a second together. All are
        stored before the outcome of the attempt. A retry emits anew: its first chunk removes those
        of earlier attempts. They are kept for a day.

        Args: chunk: a plain value, up to 64 KiB as JSON; up to 100,000 of an attempt, of 4 MiB.

        Raises:
          BadInput: the chunk is not JSON or too large, or there are too many; earlier ones stay.
          LeaseLost, JobTimeout: as `check_cancelled`. Do not catch them.
        """
        self._expect_time()
        emit(self, chunk, self._job, self._control, is_finished=self._finishing is not None)

    @property
    def meta(self) -> dict[str, Any]:
        """What `set_meta` noted of this job, also in earlier attempts; a copy."""
        return read_meta(self._said.meta)

    def set_meta(self, **values: object) -> None:
        """Note values beside the job, which callers read in `job.meta` within a second.

        They are added to those noted before, and stored as the progress is: the next attempt gets
        them in `ctx.meta`. They are kept for a day after the last report.

        Args: values: small plain values, by name; all together up to 4 KiB as JSON.

        Raises:
          BadInput: the values are not plain, or too large.
          LeaseLost, JobTimeout: as `check_cancelled`. Do not catch them.
        """
        self._expect_time()
        self._report(self._said._replace(meta=meta_of({**self.meta, **values})))

    def spend(self, limit: str, units: int) -> None:
        """Say how many units of a rate this attempt really takes, instead of its cost.

        Call it while the handler runs, as soon as it is known. Units that are not needed are
        returned; more units count as taken now, and later jobs wait for them. A semaphore is not
        changed: its permits are released when the attempt ends.

        Args: limit: a limit of the job with a cost, without or with its key. units: of the whole
          attempt so far; another call replaces it.

        Raises:
          BadInput: the job has no such limit with a cost, or the number is invalid.
          LeaseLost, JobTimeout: as `check_cancelled`. Do not catch them.
        """
        if not self._job.is_claimed():  # a plain call
            return
        self._expect_time()
        names = costs_of(self._job)
        name = next((each for each in names if limit in (each, semaphore_of(each))), None)
        if name is None:
            raise BadInput(
                f"The job takes no number of units of the limit {limit!r:.80}.",
                hint=f"Its limits with a cost: {', '.join(names) or 'none'}.",
            )
        spent = {**dict(self._said.spent), name: checked_units(units, name, least=0)}
        self._report(self._said._replace(spent=tuple(spent.items())))

    def _report(self, report: ProgressReport) -> None:
        self._said = self._reported = report
        self._control.report(self._claim, report)

    def _expect_time(self) -> None:
        """Raise if nothing that the handler does counts any more."""
        if self._control.is_lost(self._claim):
            raise LeaseLost(f"The claim on job {self.job_id.hex()} was lost.")
        if self._control.is_overdue(self._claim):
            raise JobTimeout

    @property
    def fence(self) -> int:
        """How often the job was claimed.

        It only grows (rule P3), so a system that stores the largest one can refuse older attempts.
        """
        return self._job.fence

    @property
    def _claim(self) -> Claim:
        return self._job.claim()

    def finish(self, tx: object, value: T) -> T:
        """Finish this job in your transaction: `return ctx.finish(tx, value)`.

        Your writes, the outcome of the job, its result, its last progress and notes, and its
        history are committed atomically.
        After the commit, nothing that the handler does or raises changes the outcome. In a plain
        call of the function there is no job to finish.

        Args: tx: from `app.transaction()`; on PostgreSQL also a connection of your own, as in
          `task.using(tx=...)`, which you commit before the function returns.

        Returns: the value, which is the result of the job.

        Raises:
          LeaseLost: the claim ended, and another worker may hold the job. Do not catch it, so that
            the transaction is rolled back.
          JobTimeout: the handler runs longer than its `timeout`.
          BadInput: this was called before, `tx` is no transaction, or the value cannot be stored.
        """
        if (joined := self._joined(tx)) is not None:
            joined.finish(self._job, self._handler, value, self._started_us, self._reported)
            self._finishing = joined
        return value

    async def afinish(self, tx: object, value: T) -> T:
        """Finish this job like `finish`: `return await ctx.afinish(session, value)`.

        Args: tx: an asynchronous session or connection, as in `task.using(tx=...)`, which you
          commit before the function returns.

        Returns: the value, which is the result of the job.

        Raises:
          LeaseLost, JobTimeout, BadInput: as `finish`.
        """
        if (joined := self._joined(tx)) is not None:
            self._finishing = await joined.afinish(
                self._job, self._handler, value, self._started_us, self._reported
            )
        return value

    def not_repeatable(self) -> Section:
        """Mark a section that must not repeat: `with ctx.not_repeatable():`, or `async with`.

        The section is marked durably before its body begins, and its end is recorded durably after
        it. If the attempt ends in the body, since its worker dies, loses the claim, stops or
        reaches the time limit, the job does not run again. It becomes a dead-letter job whose error
        begins with "Uncertain:", and an operator decides: `retry`, `settle` or delete.

        An exception that the body raises ends the section: the attempt fails as usual, and a retry
        may enter it. After a section that ended normally, a later attempt does not enter one again:
        entering raises, and the job is uncertain. Ask `has_section_ended` first to skip it.

        In a plain call of the function nothing is marked.

        Raises:
          BadInput: this is a durable function; or, on entering, a section is open.
          LeaseLost: on entering, the claim was lost. Do not catch it.
          StoreUnavailable: on entering or leaving, the store does not answer. On leaving, the job
            is uncertain.
        """
        if self._handler.is_durable:
            raise BadInput(
                "A durable function has no sections that must not repeat.",
                hint="Use ctx.step(function, once=True).",
            )
        if self._section is None:
            engine = self._handler.engine_of() if self._job.is_claimed() else None
            self._section = Section(engine, self._job)
        return self._section

    def has_section_ended(self) -> bool:
        """Return whether a section that must not repeat ended in an earlier attempt of the job.

        It is known for 30 days, and until an operator retries the job as a dead-letter job.
        """
        if not self._job.is_claimed():
            return False
        marks = marks_of(self._handler.engine_of().store, self.job_id)
        return any(mark.fence != self.fence and not mark.is_open for mark in marks)

    def _joined(self, tx: object) -> Finishing | None:
        """Return the transaction that finishes the job; None in a plain call."""
        if not self._job.is_claimed():
            return None
        self._expect_time()
        if self._finishing is not None and (
            self._finishing.is_open or self._finishing.is_committed
        ):
            raise BadInput(f"The job {self.job_id.hex()} was finished before.")
        expect_no_chunks(self)
        return self._handler.join(tx, self.queue)

    def watched_by(self, watch: Any) -> None:  # noqa: ANN401  (a FunctionWatch, which is above)
        """Take what counts the steps of durable functions; other jobs have none."""

    def ending_after(self, ending: Ending) -> Ending:
        """Return how the attempt ends, as its handler has ended.

        Unless it succeeded, an open section makes it uncertain. Durable functions decide it.
        """
        section = self._section
        if section is None or isinstance(ending, Done):
            return ending
        if section.is_open:
            return Uncertain(
                f"Its attempt ended in a section that must not repeat: {_word(ending)}"
            )
        return Uncertain(section.refusal) if section.refusal else ending

    @property
    def is_settled(self) -> bool:
        """Whether the job was finished in a transaction that is committed."""
        return self._finishing is not None and self._finishing.is_committed


def _word(ending: Ending) -> str:
    if isinstance(ending, Failed):
        return f"{ending.error_type}: {ending.message}".rstrip(": ")
    return "it was cancelled." if isinstance(ending, Cancelled) else "its worker stopped."


Middleware = Callable[
    [Context], AbstractContextManager[object] | AbstractAsyncContextManager[object]
]
"""Returns a context manager that wraps one call of a handler."""


KeptLogs = Literal["off", "failed", "all"]
"""Of which attempts the log of a handler is kept."""


class Handler(HandlerCodec):
    """A registered function, with its name, the codec of its arguments and its retry policy.

    Args:
        timeout_us: When JobTimeout is raised in it.
        kill_after_us: When the child process that runs it is killed.
        payloads: The codecs of the application.
        codec: Codec of its arguments, None for the default of the application.
        limits: See `limit_names.read_limits`.
        join: Gives the transaction of an object that is passed to `Context.finish`.
        engine_of: Returns the engine of the application.
        logs: Of which attempts its log is kept.
        large: Size in bytes above which its arguments and results are blobs; None for that of the
            application.
        pause_after: When the task is paused by itself; None for never.

    Raises:
        BadInput: Its annotations cannot be used, or a Context is not its first parameter.
    """

    context_class: type[Context] = Context
    """What the function takes as its first parameter."""

    is_durable = False
    """Whether the function is suspended and replayed."""

    __slots__ = (
        "engine_of",
        "function",
        "is_async",
        "join",
        "kill_after_us",
        "limits",
        "logs",
        "middleware",
        "needs",
        "pause_after",
        "requires",
        "result_kind",
        "retry",
        "takes_context",
        "timeout_us",
    )

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        name: str,
        retry: Retry,
        timeout_us: int | None,
        kill_after_us: int | None = None,
        payloads: Payloads | None = None,
        codec: str | None = None,
        limits: object = (),
        needs: object = None,
        requires: Requirements | None = None,
        join: Join | None = None,
        engine_of: Callable[[], Engine] | None = None,
        middleware: object = (),
        logs: KeptLogs = "off",
        large: int | None = None,
        pause_after: Failures | None = None,
    ) -> None:
        check_value(logs, KeptLogs, "logs")
        self.logs: KeptLogs = logs
        self.large = large
        check_pause(pause_after)
        self.pause_after = pause_after
        self.name = name
        self.join = join or _no_transaction
        self.engine_of = engine_of or _no_engine
        self.function = function
        self.retry = retry
        self.timeout_us = timeout_us
        self.kill_after_us = kill_after_us
        self.takes_context = takes_first(self.context_class, function, name)
        self.arguments = self._arguments(function)
        self.limits = self.read_limits(limits)
        self.needs = () if needs is None else read_needs(needs)
        self.requires = requires
        self._payloads = payloads or Payloads()
        self._codec = codec
        self.is_async = inspect.iscoroutinefunction(function)
        self.middleware = read_middleware(middleware, is_async=self.is_async)
        self.result_kind = get_type_hints(function).get("return", Any)
        if (kind := unknown_kind(self.result_kind)) is not None:
            log.warning(
                "The result of %s cannot be kept as JSON: its annotation names %s. Return plain "
                "values, or keep no results with app.queue(..., keep=0).", name, kind.__name__
            )  # fmt: skip

    @property
    def body(self) -> Callable[..., Any]:
        """The application's own function."""
        return self.function

    def _arguments(self, function: Callable[..., Any]) -> Arguments:
        return Arguments(function, self.name, skip=1 if self.takes_context else 0)

    def call_here(self, row: Job, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:  # noqa: ANN401
        """Call the function in this process; a coroutine function returns an awaitable.

        Args: row: of a job that is not stored.
        """
        if self.takes_context:
            args = (Context(row, NoControl(), self), *args)
        return self.function(*args, **kwargs)

    def read_limits(self, limits: object) -> tuple[str, ...]:
        """Check limits as a caller passes them; their braces name arguments of this function.

        Raises: BadInput: they are invalid, or too many.
        """
        return read_limits(limits, self.arguments.names, self.name)

    def limits_of(self, codec: int, body: bytes) -> tuple[str, ...]:
        """Return the limits of a stored call; none if its arguments do not fit.

        Exceptions of application code propagate: of a codec, or of formatting an argument.
        """
        if not self.limits:
            return ()
        try:
            return limits_of_call(self.limits, self.arguments.named(*self.read(codec, body)))
        except BadInput:  # the run of the job reports it
            return ()


def _no_engine() -> NoReturn:
    raise BadInput("This worker has no store for sections that must not repeat.")


def _no_transaction(_tx: object, _queue: str) -> NoReturn:
    raise BadInput("This worker has no transactions.", hint="Return the value instead.")
