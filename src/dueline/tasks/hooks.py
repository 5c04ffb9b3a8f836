"""Hooks and middleware: functions that an application registers for events of its jobs."""

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeVar

from dueline.core.errors import BadInput, JobTimeout
from dueline.core.user_code import Raised, contain, log_raised
from dueline.tasks.handler import Middleware
from dueline.tasks.raised import Cancel, Snooze

log = logging.getLogger("dueline.tasks.hooks")

EnqueueName = Literal["before_enqueue", "after_enqueue"]
ClaimName = Literal["claim"]
RunName = Literal["before_run"]
RanName = Literal["after_run"]
SettleName = Literal["retry", "done", "dead", "cancelled", "expired", "lost", "lease_lost"]

NAMES = (
    *("before_enqueue", "after_enqueue", "claim", "before_run", "after_run"),
    *("retry", "done", "dead", "cancelled", "expired", "lost", "lease_lost"),
)

E = TypeVar("E")
R = TypeVar("R")


class HookDecorator(Protocol[E]):
    """The decorator that `app.on(...)` returns: it adds a function, and returns it."""

    def __call__(self, function: Callable[[E], R], /) -> Callable[[E], R]:
        """Add a function."""
        ...


@dataclass(frozen=True, slots=True)
class EnqueueEvent:
    """Jobs of a task are about to be stored, or were stored.

    due_us: microseconds UTC, None for now. count: number of jobs. job_ids: empty before.
    """

    task: str
    queue: str
    priority: int
    tenant: str
    due_us: int | None
    count: int
    job_ids: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class ClaimEvent:
    """A worker has claimed a job, and will start it.

    attempt: 1 for the first. fence: number of the claim. due_us, claimed_us: microseconds UTC.
    """

    job_id: str
    task: str
    queue: str
    tenant: str
    priority: int
    attempt: int
    fence: int
    due_us: int
    claimed_us: int


@dataclass(frozen=True, slots=True)
class RunEvent:
    """A handler is about to be called. attempt: 1 for the first. fence: number of the claim."""

    job_id: str
    task: str
    queue: str
    attempt: int
    fence: int


@dataclass(frozen=True, slots=True)
class RanEvent:
    """A handler returned or raised; the outcome is not stored yet.

    ending: Done, Failed, Snoozed, Cancelled, Settled. error: its type and message, or "".
    """

    job_id: str
    task: str
    queue: str
    attempt: int
    fence: int
    ending: str
    error: str


@dataclass(frozen=True, slots=True)
class SettleEvent:
    """The outcome of an attempt is stored, or its claim was lost.

    error: type and message, or "". again_us: when it is retried, microseconds UTC; None: never.
    late_us: how long after the deadline of the job it ended; 0: in time, or without deadline.
    """

    job_id: str
    task: str
    queue: str
    attempt: int
    fence: int
    error: str
    again_us: int | None
    late_us: int = 0


class EnqueueSpan(Protocol):
    """The span of calls that are being stored.

    headers: the trace context, which travels with the jobs.
    """

    headers: Mapping[str, str]

    def end(self, job_ids: Sequence[str], error: BaseException | None) -> None:
        """End the span: the calls were stored as these jobs, or storing them raised an error."""
        ...


@dataclass(frozen=True, slots=True)
class StepCall:
    """An attempt of a step of a durable function, or of a compensation.

    kind: "step" or "undo". position: such as "5.2". attempt: 1 for the first.
    """

    job_id: str
    task: str
    kind: str
    name: str
    position: str
    attempt: int


class StepSpan(Protocol):
    """The span of a step that runs."""

    def fail(self, error: BaseException) -> None:
        """Note that the step raised."""
        ...


class Tracer(Protocol):
    """Makes spans of calls that are stored, and of steps that run."""

    def enqueue(self, queue: str, task: str, count: int) -> EnqueueSpan:
        """Start a span."""
        ...

    def step(self, call: StepCall) -> AbstractContextManager[StepSpan]:
        """Make the current span while a step runs."""
        ...


class Hooks:
    """Functions that are called for events, in the order in which they were added.

    has_run_hooks, has_enqueue_hooks: whether a function is registered for runs, or for calls.
    middleware: wraps the handlers of all tasks. tracer: makes spans; None without tracing.
    """

    def __init__(self) -> None:
        self.tracer: Tracer | None = None
        self.middleware: tuple[Middleware, ...] = ()
        self._functions: dict[str, list[Callable[[Any], object]]] = {}
        self.has_run_hooks = self.has_enqueue_hooks = False

    def on(self, name: str, /) -> HookDecorator[Any]:
        """Register a function for an event: `app.on("dead")(function)`, or as a decorator.

        Raises: BadInput: the event does not exist.
        """
        if name not in NAMES:
            raise BadInput(f"There is no hook {name!r:.40}.", hint=f"Use {', '.join(NAMES)}.")

        def add(function: Callable[[Any], object]) -> Any:  # noqa: ANN401  (see HookDecorator)
            self._functions.setdefault(name, []).append(function)
            self.has_run_hooks = self.has("before_run") or self.has("after_run")
            self.has_enqueue_hooks = self.has("before_enqueue") or self.has("after_enqueue")
            return function

        return add

    def has(self, name: str) -> bool:
        """Return whether a function is registered: events are only created then."""
        return name in self._functions

    def call_or_raise(self, name: str, event: object) -> None:
        """Call the functions; their exceptions propagate."""
        for function in self._functions.get(name, ()):
            function(event)

    def call_claimed(self, event: ClaimEvent) -> Snooze | Cancel | None:
        """Call the functions of a claim until one refuses the job; return how.

        Other exceptions are logged, and change nothing.
        """
        for function in self._functions.get("claim", ()):
            raised = contain(function, event)
            if isinstance(raised, Raised):
                if isinstance(raised.error, Snooze | Cancel):
                    return raised.error
                log_raised(log, raised, "the hook claim failed")
        return None

    def call(self, name: str, event: object) -> None:
        """Call the functions; their exceptions are logged, and change nothing.

        Raises: JobTimeout: the job timed out in a hook before its handler.
        """
        for function in self._functions.get(name, ()):
            raised = contain(function, event)
            if isinstance(raised, Raised):
                log_raised(log, raised, "the hook %s failed", name)
                if name == "before_run" and isinstance(raised.error, JobTimeout):
                    raise raised.error
