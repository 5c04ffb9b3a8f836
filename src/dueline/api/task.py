"""Tasks and their calls."""

from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from itertools import repeat
from operator import attrgetter
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Generic,
    Never,
    NoReturn,
    ParamSpec,
    TypeVar,
    cast,
)

from dueline.api.call_options import (
    Options,
    check_called,
    check_recurring,
    check_step,
    with_options,
)
from dueline.api.connection import Connection
from dueline.api.dependency import Awaited, Dependency
from dueline.api.handle import R_co
from dueline.api.job_handle import Job
from dueline.api.maps import NO_KEYS, Maps, Written
from dueline.api.task_declaration import Call, as_call
from dueline.api.tracing import traced
from dueline.core.call_options import CallOptions, OrderKey, Unique
from dueline.core.codec import JSON
from dueline.core.constraints import check_value, integer
from dueline.core.deadlines import priority_of
from dueline.core.errors import (
    BadInput,
    Duplicate,
    EnqueueUnknown,
    QuotaExceeded,
    StoreUnavailable,
)
from dueline.core.job import UNCLAIMED_TOKEN, JobId
from dueline.core.job import Job as Row
from dueline.core.lane import Lane
from dueline.core.limit_names import is_same_for_all, limits_of_call
from dueline.core.option_table import NAMES
from dueline.core.requirements import expect_met
from dueline.core.retry import Retry
from dueline.jobs.queue import EnqueueRequest
from dueline.jobs.transaction import Transaction, in_transaction
from dueline.schedules.schedule import Template
from dueline.tasks.familiar_words import CALL_OPTIONS, check_options, unknown_method
from dueline.tasks.handler import Handler
from dueline.tasks.hooks import EnqueueEvent
from dueline.workflows.parts import Step, StepCall

if TYPE_CHECKING:
    from dueline.durable.calls import ChildCall

P = ParamSpec("P")
R = TypeVar("R")

CHUNK = 500
CHUNK_MAX = 10_000
_Chunk = Annotated[int, integer(1, CHUNK_MAX)]
_id_of = attrgetter("id")


class Using(Maps[P, R]):
    """A task with options for its calls; `task.using(...)` returns it."""

    __slots__ = ("_carried", "_handler", "_has_keys", "_host", "_is_timed", "_options", "_opts")

    def __init__(self, host: Connection, handler: Handler, options: Options) -> None:
        self._host = host
        self._handler = handler
        self._options = options
        self._carried = options.carried()
        self._opts = CallOptions(options.expires_us, **self._carried).to_bytes()
        self._has_keys, self._is_timed = options.has_keys(), options.is_timed()

    if not TYPE_CHECKING:  # for mypy, such an attribute does not exist

        def __getattr__(self, name: str) -> NoReturn:
            """Name what to write instead of a method of another queue."""
            raise unknown_method(self._handler.name, name)

    @property
    def has_unique_key(self) -> bool:
        """Whether calls have a unique key."""
        return self._options.unique is not None

    def using(
        self,
        *,
        due: datetime | None = None,
        after: timedelta | float | None = None,
        priority: int | None = None,
        queue: str | None = None,
        tenant: str | None = None,
        tx: object = None,
        expires: datetime | timedelta | float | None = None,
        window: timedelta | float | None = None,
        unique: Unique | str | None = None,
        tags: Iterable[str] | None = None,
        limits: Iterable[str] | None = None,
        wait: timedelta | float | None = None,
        deadline: datetime | timedelta | float | None = None,
        retry: Retry | None = None,
        timeout: timedelta | float | None = None,
        kill_after: timedelta | float | None = None,
        keep: timedelta | float | None = None,
        headers: Mapping[str, str] | None = None,
        needs: Mapping[str, int | str] | None = None,
        order_key: OrderKey | str | None = None,
        depends_on: Dependency | Awaited | Iterable[Awaited] | None = None,
        webhook: str | None = None,
        **unknown: Never,
    ) -> "Using[P, R]":
        """Return the task with options for its calls.

        Example: `send.using(after=60, priority=5).enqueue("ann@example.org")`.

        Args:
            due: Time at which the job becomes due; an aware datetime, at most ten years ahead.
            after: Duration from the call after which the job becomes due; a timedelta or seconds.
            priority: Signed 32-bit integer; larger runs first, 0 is the default.
            queue: Queue of the job; by default the task's own.
            tenant: Tenant of the job; by default none.
            tx: The transaction of `with app.transaction() as tx:` that stores the job. On
                PostgreSQL also your own connection with an open transaction: of psycopg 3,
                SQLAlchemy (a Session or Connection) or Django.
            expires: Time, or duration from the call, after which the job no longer runs.
            window: Jitter: starts are spread evenly over this duration after the due time.
            unique: Key that only one unfinished job has at a time; a string is `Unique(string)`.
            tags: Up to 20 tags to find the job by.
            limits: Limits instead of the task's own, such as "warehouse" or "host:{host}".
            wait: Maximum duration to wait for room in a quota; not inside a transaction.
            deadline: Time, or duration from the call, by which the job should be done; instead
                of a priority. The earliest deadline runs first, after all jobs with priorities.
            retry: Attempts and waits instead of the task's own; which exceptions are retried
                stays as the task says.
            timeout: Duration after which JobTimeout is raised in the handler.
            kill_after: Duration after which the child process of the handler is killed.
            keep: Duration that the result is kept instead of the queue's, 0 for none.
            headers: Small strings by name that travel with the job, as `ctx.headers`.
            needs: What the job's worker must have, instead of the task's own needs: up to 8 labels
                and units of resources, such as {"gpu": 1, "region": "eu", "memory": "2 GiB"}.
            order_key: Key whose jobs run one at a time, in the order of calls; see `OrderKey`.
            depends_on: Jobs and workflows that must end before the job starts: handles or ids. The
                job is cancelled if one fails, and waits while one is dead; see `Dependency`.
            webhook: An https URL to which a job posts how this one ended; see `app.webhooks`.
            **unknown: None; an error names the option that was meant.

        Returns:
            The task with these options; options that are not given keep their values.

        Raises:
            BadInput: A value is out of range, `due` has no time zone, or options exclude each
                other.
        """
        given = locals()  # the options by name; each is read as the table says
        if unknown:
            check_options(unknown, CALL_OPTIONS, NAMES, "`using`")
        options = with_options(self._options, given, host=self._host, handler=self._handler)
        return Using(self._host, self._handler, options)

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Job[R]:
        """Enqueue a call durably; a worker runs it.

        Args:
            *args: Positional arguments of the function.
            **kwargs: Named arguments of the function.

        Returns:
            A handle on the job.

        Raises:
            BadInput: The arguments do not fit the function or cannot be stored. Nothing was
                stored.
            Duplicate: Another job holds the unique key. Nothing was stored.
            QuotaExceeded: A quota of the queue or tenant is exhausted. Nothing was stored.
            EnqueueUnknown: The job may or may not be stored; see `jobs` of the error.
            StoreUnavailable: Nothing was stored.
        """
        return self._jobs(self._put(self._request(self._written(args, kwargs))))[0]

    def call(self, *args: P.args, **kwargs: P.kwargs) -> "PlannedCall[R]":
        """Return a call with its options, to be enqueued by `app.enqueue_many`.

        Args:
            *args: Positional arguments of the function.
            **kwargs: Named arguments of the function; all are checked when they are enqueued.
        """
        return PlannedCall(self, args, kwargs)

    def _written(self, args: Sequence[object], kwargs: Mapping[str, object]) -> Written:
        """Encode one call."""
        codec, body = self._handler.write(args, kwargs)
        if not self._has_keys:
            return codec, [body], NO_KEYS, ()
        unique, order, limits = self._options.unique, self._options.order_key, self._options.limits
        named = self._handler.arguments.named(args, kwargs)
        keys = unique.rule(named) if unique else None, order.place(named) if order else None
        return codec, [body], keys, [limits_of_call(limits, named)]

    def enqueue_many(self, calls: Iterable[Call], *, chunk: int = CHUNK) -> list[Job[R]]:
        """Enqueue many calls in batches.

        All arguments are checked before the first write. For calls with options of their own, see
        `app.enqueue_many`.

        Args:
            calls: The calls; each a tuple or list of positional arguments, or a dict of named
                ones, such as `[("ann",), ("ben",)]`.
            chunk: Maximum number of jobs per write, 1 to 10,000.

        Returns:
            Handles on the jobs, in the order of the calls.

        Raises:
            BadInput: A call does not fit the function. Nothing was stored.
            Duplicate: Another job holds a unique key.
            QuotaExceeded: A quota of the queue or tenant is exhausted.
            EnqueueUnknown: Some jobs may or may not be stored; see `jobs` of the error.
            StoreUnavailable: The store did not answer. As with the errors above, earlier batches
                are stored, and `unsent` of the error counts the calls that were not sent.
        """
        check_value(chunk, _Chunk, "chunk")
        if not isinstance(calls, Iterable):
            raise BadInput(
                f"`calls` must be a list of calls (got {type(calls).__name__}).",
                hint='Use [("a",), ("b",)].',
            )
        calls = list(calls)
        if (own := self._options).unique or own.order_key or not is_same_for_all(own.limits):
            each = [PlannedCall(self, *as_call(call)) for call in calls]
            return enqueue_all(self._host, each, chunk=chunk, tx=self._options.tx)
        try:
            if set(map(type, calls)) <= {tuple, list}:
                rows = cast("list[Sequence[object]]", calls)
                codec, encoded = self._handler.write_positional(rows)
            else:
                codec, encoded = self._handler.write_many([as_call(call) for call in calls])
        except BadInput:
            self._refuse_call(calls)
            raise
        limits = limits_of_call(self._options.limits, {})
        jobs: list[Job[R]] = []
        for start in range(0, len(encoded), chunk):
            part = encoded[start : start + chunk]
            try:
                written = codec, part, NO_KEYS, [limits] * len(part)
                jobs += self._jobs(self._put(self._request(written)))
            except (StoreUnavailable, QuotaExceeded) as error:
                sent = len(part) if isinstance(error, EnqueueUnknown) else 0
                error.unsent = len(encoded) - len(jobs) - sent
                raise
        return jobs

    def _refuse_call(self, calls: Sequence[Call]) -> None:
        """Raise BadInput about the first call that cannot be written, with its index."""
        for index, call in enumerate(calls):
            try:
                self._handler.write(*as_call(call))
            except BadInput as error:
                raise BadInput(f"calls[{index}]: {error.message}", hint=error.hint) from error

    def recurring(self, args: Sequence[Any] = (), kwargs: Mapping[str, Any] = {}) -> Template:
        """Return a call that a schedule can repeat.

        Args:
            args: Positional arguments of the function.
            kwargs: Named arguments of the function.

        Raises:
            BadInput: The arguments do not fit, or an option does not apply to schedules.
        """
        own = self._options
        check_recurring(own, self._handler.name)
        self._expect_store()
        codec, body = self._handler.write_small(args, kwargs)
        late_us = own.expires_after_us or 0
        limits = limits_of_call(own.limits, self._handler.arguments.named(args, kwargs))
        return Template(
            self._handler.name, own.queue, codec, body, own.priority, own.tenant, late_us,
            own.window_us, limits, **self._carried,
        )  # fmt: skip

    def step(self, *args: Any, **kwargs: Any) -> Step:  # noqa: ANN401  (see below)
        """Return a step of a workflow.

        The results of the steps before it are its first arguments.

        Args:
            *args: The other positional arguments.
            **kwargs: Named arguments; all are checked when the workflow starts.

        Raises:
            BadInput: An option does not apply to steps.
        """
        check_step(self._options)
        return Step(self._handler.name, lambda given: self._step_call(args, kwargs, given))

    def _step_call(self, args: Sequence[Any], kwargs: Mapping[str, Any], given: int) -> StepCall:
        own, handler = self._options, self._handler
        self._expect_store()
        codec, body = handler.write_rest(args, kwargs, given)
        limits = own.limits
        if limits:
            if given and not is_same_for_all(limits):
                what = f"A limit of {handler.name} names an argument that other steps may provide."
                raise BadInput(what, hint="Use a limit without a key: using(limits=[...]).")
            named = {} if given else handler.arguments.named(args, kwargs)
            limits = limits_of_call(limits, named)
        due_us, expires_us, _ = self._instants()
        return StepCall(
            handler.name, own.queue, codec, body, self._priority(), own.tenant, due_us, expires_us,
            limits, **self._carried,
        )  # fmt: skip

    def _instants(self) -> tuple[int | None, int | None, int]:
        """Return when a call is due and expires (or None), and when it was made if these count."""
        own = self._options
        due_us, expires_us = own.due_us, own.expires_us
        if own.after_us is None and own.expires_after_us is None:
            return due_us, expires_us, 0
        now_us = self._host.queues.engine.time.latest_us()
        if own.after_us is not None:
            due_us = now_us + own.after_us
        if own.expires_after_us is not None:
            expires_us = now_us + own.expires_after_us
        return due_us, expires_us, now_us

    def _priority(self) -> int:
        own, deadline_us = self._options, self._options.deadline_us
        if own.due_within_us is not None:
            deadline_us = self._host.queues.engine.time.latest_us() + own.due_within_us
        return own.priority if deadline_us is None else priority_of(deadline_us)

    async def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> Job[R]:
        """Enqueue a call like `enqueue`, without blocking the event loop.

        If the await is cancelled, the job may still be stored.

        Args:
            *args: Positional arguments of the function.
            **kwargs: Named arguments of the function.

        Returns:
            A handle on the job.

        Raises:
            BadInput: As in `enqueue`, or the task uses a transaction.
        """
        if self._options.tx is not None:
            return await in_transaction(
                self._options.tx, lambda tx: self._in(tx).enqueue(*args, **kwargs)
            )
        if self._is_plain():
            prepare = partial(self._prepared, args, kwargs)
            return self._jobs([await self._host.shared_enqueues.put(prepare)])[0]
        from asyncio import to_thread  # noqa: PLC0415  (slow to load)

        return await to_thread(self.enqueue, *args, **kwargs)

    def _is_plain(self) -> bool:
        """Return whether calls can share a write: nothing runs around or waits before it."""
        own, hooks = self._options, self._host.hooks
        is_alone = own.unique or own.order_key or own.wait_us
        return not (is_alone or hooks.tracer or hooks.has_enqueue_hooks)

    def _prepared(self, args: Sequence[object], kwargs: Mapping[str, object]) -> EnqueueRequest:
        """Return what stores one call; a queue that only the call names is logged."""
        request = self._request(self._written(args, kwargs))
        self._host._notice(request.queue, self._options.limits)  # noqa: SLF001
        return request

    async def aenqueue_many(self, calls: Iterable[Call], *, chunk: int = CHUNK) -> list[Job[R]]:
        """Enqueue calls like `enqueue_many`, without blocking the event loop.

        Args:
            calls: The calls.
            chunk: Maximum number of jobs per write.

        Returns:
            Handles on the jobs, in the order of the calls.

        Raises:
            BadInput: As in `enqueue_many`, or the task uses a transaction.
        """
        if self._options.tx is not None:
            return await in_transaction(
                self._options.tx, lambda tx: self._in(tx).enqueue_many(calls, chunk=chunk)
            )
        from asyncio import to_thread  # noqa: PLC0415  (slow to load)

        return await to_thread(self.enqueue_many, calls, chunk=chunk)

    def _in(self, tx: Transaction) -> "Using[P, R]":
        return Using(self._host, self._handler, self._options.changed(tx=tx))

    def _put(
        self,
        request: EnqueueRequest,
        store: Callable[[EnqueueRequest], Sequence[Row]] | None = None,
    ) -> Sequence[Row]:
        """Store calls. store: stores them otherwise than `Queues.enqueue` does."""
        options, host = self._options, self._host
        if store is None:
            store = (host.queues if options.tx is None else options.tx.queues_of(host)).enqueue
        if options.tx is None:
            host._notice(options.queue, options.limits)  # noqa: SLF001
        hooks = host._hooks  # noqa: SLF001
        if hooks.tracer is None and not hooks.has_enqueue_hooks:
            return store(request)
        event = _before(host, request)
        rows = traced(hooks.tracer, [request], lambda requests: store(*requests))
        _after(host, event, rows)
        return rows

    def _request(self, written: Written) -> EnqueueRequest:
        """Return what stores some calls, with times that count from now."""
        if self._handler.requires is not None:
            self._expect_store()
        options, (codec, bodies, keys, limits) = self._options, written
        due_us, priority, opts, called_us = options.due_us, options.priority, self._opts, 0
        if self._is_timed or keys != NO_KEYS:
            due_us, expires_us, called_us = self._instants()
            priority = self._priority()
            opts = CallOptions(expires_us, keys[0], order=keys[1], **self._carried).to_bytes()
        return EnqueueRequest(
            options.queue, self._handler.name, codec, bodies, due_us, priority,
            options.tenant, opts, options.window_us, limits if options.limits else (),
            0 if options.tx else options.wait_us, called_us,
        )  # fmt: skip

    def _expect_store(self) -> None:
        if self._handler.requires is not None:
            expect_met(self._host.queues.engine, self._handler.requires, self._options.queue)

    def _jobs(self, rows: Iterable[Row]) -> list[Job[R]]:
        host, kind = self._host, self._handler.result_kind
        common = host.queues, host._clock, kind, host._tasks  # noqa: SLF001
        return list(map(Job, map(_id_of, rows), *map(repeat, common)))


class PlannedCall(Generic[R_co]):
    """A call of a task with its options; `task.call(...)` returns it."""

    __slots__ = ("args", "kwargs", "using")

    def __init__(
        self, using: Using[..., R_co], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> None:
        self.using, self.args, self.kwargs = using, args, kwargs

    def child(self) -> "ChildCall":
        """Encode the call for a durable function that makes it.

        Raises:
            BadInput: The arguments do not fit, or an option does not apply to such calls.
        """
        from dueline.durable.calls import ChildCall  # noqa: PLC0415  (of durable functions)

        using = self.using
        check_called(using._options, using._handler.name)  # noqa: SLF001  (of this module)
        written = using._written(self.args, self.kwargs)  # noqa: SLF001
        handler = using._handler  # noqa: SLF001
        request = partial(using._request, written)  # noqa: SLF001
        return ChildCall(handler.name, request, handler.result_kind)


def enqueue_all(
    host: Connection, calls: Sequence[PlannedCall[R]], *, chunk: int, tx: Transaction | None
) -> list[Job[R]]:
    """Enqueue calls with options of their own: see `Dueline.enqueue_many`."""
    check_value(chunk, _Chunk, "chunk")
    inside = host.queues if tx is None else tx.queues_of(host)
    written: list[Written] = []
    for index, call in enumerate(calls):
        try:
            written.append(_write(host, call, tx))
        except BadInput as error:
            raise BadInput(f"calls[{index}]: {error.message}", hint=error.hint) from error
    jobs: list[Job[R]] = []
    if tx is None:
        for call in calls:
            own = call.using._options  # noqa: SLF001  (of this module)
            host._notice(own.queue, own.limits)  # noqa: SLF001
    for start in range(0, len(written), chunk):
        part = calls[start : start + chunk]
        requests = [
            call.using._request(each)  # noqa: SLF001  (of this module)
            for call, each in zip(part, written[start : start + chunk], strict=True)
        ]
        events = [_before(host, request) for request in requests]
        try:
            rows = traced(host.hooks.tracer, requests, inside.enqueue_all)
        except (StoreUnavailable, Duplicate, QuotaExceeded) as error:
            error.unsent += len(written) - start - len(part)
            if isinstance(error, Duplicate):
                error.name_call(len(written) - error.unsent)
            raise
        for call, event, row in zip(part, events, rows, strict=True):
            _after(host, event, [row])
            jobs += call.using._jobs([row])  # noqa: SLF001
    return jobs


def request_of(host: Connection, call: PlannedCall[Any]) -> EnqueueRequest:
    """Check a call; return what stores it, with times that count from now."""
    return call.using._request(_write(host, call, None))  # noqa: SLF001  (of this module)


def _write(host: Connection, call: PlannedCall[Any], tx: Transaction | None) -> Written:
    if not isinstance(call, PlannedCall):
        raise BadInput(f"It is a {type(call).__name__} and not a call.", hint="Use task.call(...).")
    using = call.using
    if using._host is not host:  # noqa: SLF001
        raise BadInput("Its task belongs to another application.")
    if using._options.tx not in (None, tx):  # noqa: SLF001
        raise BadInput("It has a transaction of its own.", hint="Use enqueue_many(calls, tx=tx).")
    return using._written(call.args, call.kwargs)  # noqa: SLF001


def _before(host: Connection, request: EnqueueRequest) -> EnqueueEvent | None:
    """Call the hooks before calls are stored; return their event, None without hooks."""
    hooks = host.hooks
    if not hooks.has_enqueue_hooks:
        return None
    event = EnqueueEvent(
        request.task, request.queue, request.priority, request.tenant, request.due_us,
        len(request.bodies),
    )  # fmt: skip
    hooks.call_or_raise("before_enqueue", event)
    return event


def _after(host: Connection, event: EnqueueEvent | None, rows: Iterable[Row]) -> None:
    if event is not None:
        host.hooks.call("after_enqueue", replace(event, job_ids=[row.id.hex() for row in rows]))


class _Named(Using[P, R]):
    """The common part of both kinds of task."""

    __slots__ = ()

    @property
    def name(self) -> str:
        """The name that jobs are stored under."""
        return self._handler.name

    @property
    def queue(self) -> str:
        """The default queue of calls."""
        return self._options.queue

    @property
    def handler(self) -> Handler:
        """The handler that workers call."""
        return self._handler

    def __repr__(self) -> str:
        return f"<Task {self.name}>"

    def _call(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:  # noqa: ANN401
        return self._handler.call_here(self._local_row(), args, kwargs)

    def _local_row(self) -> Row:
        lane = Lane(self._options.queue, 0, 0, self._options.priority, self._options.tenant)
        job_id = JobId(UNCLAIMED_TOKEN)
        return Row(lane, 0, job_id, 0, 0, 0, self.name, JSON, b"", b"", 0)


class Task(_Named[P, R]):
    """A registered function, to be called directly or enqueued; `@app.task` creates it."""

    __slots__ = ()

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function in this process; nothing is stored."""
        result: R = self._call(args, kwargs)
        return result


class AsyncTask(_Named[P, R]):
    """A registered coroutine function, which can be awaited directly or enqueued."""

    __slots__ = ()

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:
        """Return the coroutine of a direct call; nothing is stored."""
        result: Coroutine[Any, Any, R] = self._call(args, kwargs)
        return result
