"""Registered functions and how they are called."""

from collections.abc import Coroutine, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import cycle, islice, repeat
from typing import Annotated, Any, Generic, ParamSpec, TypeVar, cast

from dueline.api.connection import Connection
from dueline.api.job_handle import Job
from dueline.api.task_declaration import (
    Call,
    Options,
    as_call,
    read_deadline,
    read_expiry,
    read_unique,
)
from dueline.core.call_options import CallOptions, Rule, Unique, read_tags
from dueline.core.clock import asked_instant_us, asked_span_us
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
from dueline.core.tuples import field
from dueline.jobs.queue import EnqueueRequest
from dueline.jobs.transaction import Transaction, expect_transaction
from dueline.schedules.schedule import Template
from dueline.tasks.handler import Handler
from dueline.tasks.hooks import EnqueueEvent
from dueline.workflows.parts import Step, StepCall

P = ParamSpec("P")
R = TypeVar("R")

CHUNK = 500
CHUNK_MAX = 10_000
_Chunk = Annotated[int, integer(1, CHUNK_MAX)]

_id_of = field(Row, "id")


class Using(Generic[P, R]):
    """A task with options for its calls."""

    __slots__ = ("_handler", "_host", "_options")

    def __init__(self, host: Connection, handler: Handler, options: Options) -> None:
        self._host = host
        self._handler = handler
        self._options = options

    def using(
        self,
        *,
        due: datetime | None = None,
        after: timedelta | float | None = None,
        priority: int | None = None,
        queue: str | None = None,
        tenant: str | None = None,
        tx: Transaction | None = None,
        expires: datetime | timedelta | float | None = None,
        window: timedelta | float | None = None,
        unique: Unique | str | None = None,
        tags: Iterable[str] | None = None,
        limits: Iterable[str] | None = None,
        wait: timedelta | float | None = None,
        deadline: datetime | timedelta | float | None = None,
    ) -> "Using[P, R]":
        """Say where and when calls run.

        Args:
          due: not before this instant; an aware datetime, at most ten years ahead.
          after: not before so long from the call on; a timedelta or seconds.
          priority: any signed 32-bit integer; larger runs first, 0 is the default.
          queue, tenant: other than the task's own.
          tx: what `with app.transaction() as tx:` gives; the jobs are stored when it commits.
          expires: not run from this instant on, or so long from the call on.
          window: starts are spread evenly over so long from the due time on.
          unique: a key that one living job has at a time; a text is Unique(text).
          tags: words to find the jobs by, up to 20.
          limits: semaphores in place of the task's own, such as "warehouse" or "host:{host}".
          wait: for so long, where a quota leaves no room; not inside a transaction.
          deadline: an instant, or so long from the call on, in place of a priority: among jobs
            with deadlines the earliest goes first, and those with priorities before all of them.

        Raises: BadInput: due is naive, or both due and after are given, a value is out of range,
        or tx is something else.
        """
        changes: dict[str, Any] = {
            name: value
            for name, value in (("priority", priority), ("queue", queue), ("tenant", tenant))
            if value is not None
        }
        if due is not None and after is not None:
            raise BadInput("Both due and after are given.", hint="Give one of them.")
        if due is not None:
            changes |= {"due_us": asked_instant_us(due, "due"), "after_us": None}
        if after is not None:
            changes |= {"after_us": asked_span_us(after, "after"), "due_us": None}
        if tx is not None:
            changes["tx"] = expect_transaction(tx)
        if expires is not None:
            changes |= read_expiry(expires)
        if window is not None:
            changes["window_us"] = asked_span_us(window, "window")
        if unique is not None:
            changes["unique"] = read_unique(unique, self._handler)
        if tags is not None:
            changes["tags"] = read_tags(tags)
        if limits is not None:
            changes["limits"] = self._handler.read_limits(limits)
        if wait is not None:
            changes["wait_us"] = asked_span_us(wait, "wait")
        if priority is not None or deadline is not None:
            changes |= read_deadline(deadline, priority)
        return Using(self._host, self._handler, replace(self._options, **changes))

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Job[R]:
        """Store a call durably; it runs in a worker.

        Raises:
          BadInput: the arguments do not fit the function or cannot be stored; nothing was.
          Duplicate: another job has its unique key.
          QuotaExceeded: its queue or tenant may have no more jobs now; nothing was stored.
          EnqueueUnknown: it may or may not be stored; see its `jobs`.
          StoreUnavailable: it is not stored.
        """
        codec, body = self._handler.write(args, kwargs)
        unique, limits = self._options.unique, self._options.limits
        if unique is None and not limits:
            return self._put(codec, [body])[0]
        named = self._handler.arguments.named(args, kwargs)
        rule = None if unique is None else unique.rule(named)
        return self._put(codec, [body], rule, [limits_of_call(limits, named)])[0]

    def enqueue_many(self, calls: Iterable[Call], *, chunk: int = CHUNK) -> list[Job[R]]:
        """Store many calls, `chunk` of them a write.

        Each is a sequence of positional arguments, or a mapping of named ones.

        Every argument is checked before the first write. Unique ones are written one by one.

        Returns: the jobs, in the order of the calls.

        Raises: as `enqueue`; calls before those that failed are stored, and the error's `unsent`
        says how many at the end were not sent.
        """
        check_value(chunk, _Chunk, "chunk")
        if not isinstance(calls, Iterable):
            raise BadInput(f"Many calls are given as {type(calls).__name__}, not as a list.")
        calls = list(calls)
        unique, limits = self._options.unique, self._options.limits
        are_alike = unique is None and is_same_for_all(limits)
        if are_alike and set(map(type, calls)) <= {tuple, list}:
            codec, encoded = self._handler.write_positional(cast("list[Sequence[object]]", calls))
        else:
            checked = [as_call(call) for call in calls]
            codec, encoded = self._handler.write_many(checked)
        rules: list[Rule | None] = [None]
        limits_of_each = repeat(limits_of_call(limits, {})) if are_alike else iter(())
        if not are_alike:
            named = [self._handler.arguments.named(*both) for both in checked]
            limits_of_each = iter([limits_of_call(limits, one) for one in named])
        if unique:  # each with a key of its own, and a write of its own
            rules = [unique.rule(one) for one in named]
            chunk = 1
        jobs: list[Job[R]] = []
        bodies, rule_of_each = iter(encoded), cycle(rules)
        while some := list(islice(bodies, chunk)):
            try:
                some_limits = list(islice(limits_of_each, len(some)))
                jobs += self._put(codec, some, next(rule_of_each), some_limits)
            except (StoreUnavailable, Duplicate, QuotaExceeded) as error:
                sent = len(some) if isinstance(error, EnqueueUnknown) else 0
                error.unsent = len(encoded) - len(jobs) - sent
                raise
        return jobs

    def recurring(self, args: Sequence[Any] = (), kwargs: Mapping[str, Any] = {}) -> Template:
        """Write a call that a schedule can repeat.

        Raises: BadInput: the arguments do not fit, or an option names an instant or a key.
        """
        own = self._options
        instants = (own.due_us, own.after_us, own.expires_us, own.deadline_us, own.due_within_us)
        if (*instants, own.tx, own.unique) != (None,) * 7:
            raise BadInput(
                "A schedule has no due, after, deadline, tx, unique key, and no instant of expiry.",
                hint="Its time is their due time; expires can be a length of time.",
            )
        codec, body = self._handler.write(args, kwargs)
        late_us = own.expires_after_us or 0
        limits = limits_of_call(own.limits, self._handler.arguments.named(args, kwargs))
        return Template(
            self._handler.name, own.queue, codec, body, own.priority, own.tenant, own.tags,
            late_us, own.window_us, limits,
        )  # fmt: skip

    def step(self, *args: Any, **kwargs: Any) -> Step:  # noqa: ANN401  (see below)
        """Make a step of a workflow: a call of which the first arguments may come from others.

        What comes before it gives the first ones; these are the rest, checked at the start.
        """
        own = self._options
        if own.tx is not None or own.unique is not None or own.window_us:
            raise BadInput(
                "A step of a workflow has no tx, unique or window of its own.",
                hint="app.start(..., tx=tx) stores a whole workflow in a transaction.",
            )
        return Step(self._handler.name, lambda given: self._step_call(args, kwargs, given))

    def _step_call(self, args: Sequence[Any], kwargs: Mapping[str, Any], given: int) -> StepCall:
        own, handler = self._options, self._handler
        codec, body = handler.write_rest(args, kwargs, given)
        limits = own.limits
        if limits:
            if given and not is_same_for_all(limits):
                what = f"A limit of {handler.name} names an argument, and other steps give it some."
                raise BadInput(what, hint="Use a limit without a key: using(limits=[...]).")
            named = {} if given else handler.arguments.named(args, kwargs)
            limits = limits_of_call(limits, named)
        due_us, expires_us = self._instants()
        return StepCall(
            handler.name, own.queue, codec, body, self._priority(), own.tenant, own.tags, due_us,
            expires_us, limits,
        )  # fmt: skip

    def _instants(self) -> tuple[int | None, int | None]:
        """Tell when a call is due, and when it expires; None: now, and never."""
        queues, own = self._host.queues, self._options
        due_us, expires_us = own.due_us, own.expires_us
        if own.after_us is not None:
            due_us = queues.engine.time.latest_us() + own.after_us
        if own.expires_after_us is not None:
            expires_us = queues.engine.time.latest_us() + own.expires_after_us
        return due_us, expires_us

    def _priority(self) -> int:
        own, deadline_us = self._options, self._options.deadline_us
        if own.due_within_us is not None:
            deadline_us = self._host.queues.engine.time.latest_us() + own.due_within_us
        return own.priority if deadline_us is None else priority_of(deadline_us)

    async def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> Job[R]:
        """Do as `enqueue` in another thread, and await it: the loop is never blocked.

        Where the awaiting is cancelled, the job may be stored all the same.
        """
        _refuse_transaction(self._options)
        from asyncio import to_thread  # noqa: PLC0415  (slow to load)

        return await to_thread(self.enqueue, *args, **kwargs)

    async def aenqueue_many(self, calls: Iterable[Call], *, chunk: int = CHUNK) -> list[Job[R]]:
        """Do as `enqueue_many` in another thread, and await it."""
        _refuse_transaction(self._options)
        from asyncio import to_thread  # noqa: PLC0415  (slow to load)

        return await to_thread(self.enqueue_many, calls, chunk=chunk)

    def _put(
        self,
        codec: int,
        bodies: Sequence[bytes],
        rule: Rule | None = None,
        limits: Sequence[Sequence[str]] = (),
    ) -> list[Job[R]]:
        queues, options = self._host.queues, self._options
        due_us, expires_us = self._instants()
        opts, priority = b"", self._priority()
        if rule is not None or expires_us is not None or options.tags:
            opts = CallOptions(expires_us, rule, options.tags).to_bytes()
        name, kind, clock = self._handler.name, self._handler.result_kind, self._host.clock
        inside = queues if options.tx is None else options.tx.queues_of(self._host)
        hooks = self._host.hooks
        event = None
        if hooks.has("before_enqueue") or hooks.has("after_enqueue"):
            event = EnqueueEvent(name, options.queue, priority, options.tenant, due_us, len(bodies))
            hooks.ask("before_enqueue", event)
        rows = inside.enqueue(
            EnqueueRequest(
                options.queue,
                name,
                codec,
                bodies,
                due_us,
                priority,
                options.tenant,
                opts,
                options.window_us,
                limits if options.limits else (),
                0 if options.tx else options.wait_us,
            )
        )
        if event is not None:
            hooks.tell("after_enqueue", replace(event, job_ids=[row.id.hex() for row in rows]))
        return list(map(Job, map(_id_of, rows), repeat(queues), repeat(clock), repeat(kind)))


class _Named(Using[P, R]):
    """What both kinds of task share."""

    __slots__ = ()

    @property
    def name(self) -> str:
        """The name under which jobs are stored."""
        return self._handler.name

    @property
    def queue(self) -> str:
        """The queue of calls that do not say otherwise."""
        return self._options.queue

    @property
    def handler(self) -> Handler:
        """The function as a worker sees it."""
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
    """A registered function: still callable right here, and able to be enqueued."""

    __slots__ = ()

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run the function here and now; nothing is stored."""
        result: R = self._call(args, kwargs)
        return result


class AsyncTask(_Named[P, R]):
    """A registered coroutine function."""

    __slots__ = ()

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:
        """Make the coroutine, to be awaited here; nothing is stored."""
        result: Coroutine[Any, Any, R] = self._call(args, kwargs)
        return result


def _refuse_transaction(options: Options) -> None:
    if options.tx is not None:
        raise BadInput(
            "A transaction belongs to its thread, and this enqueues in another.",
            hint="Use enqueue with using(tx=...), in asyncio.to_thread with the transaction.",
        )
