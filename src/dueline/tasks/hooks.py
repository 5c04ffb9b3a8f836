"""What others want to hear of."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeVar, overload

from dueline.core.errors import BadInput, JobTimeout
from dueline.core.user_code import Raised, contain, log_raised

log = logging.getLogger("dueline.tasks.hooks")

EnqueueName = Literal["before_enqueue", "after_enqueue"]
RunName = Literal["before_run"]
RanName = Literal["after_run"]
SettleName = Literal["retry", "done", "dead", "cancelled", "expired", "lost", "lease_lost"]

NAMES = (
    *("before_enqueue", "after_enqueue", "before_run", "after_run"),
    *("retry", "done", "dead", "cancelled", "expired", "lost", "lease_lost"),
)

E = TypeVar("E")
R = TypeVar("R")


class HookDecorator(Protocol[E]):
    """What `app.on(...)` answers: it adds a function, and gives it back."""

    def __call__(self, function: Callable[[E], R], /) -> Callable[[E], R]:
        """Add a function."""
        ...


@dataclass(frozen=True, slots=True)
class EnqueueEvent:
    """Calls of a task are about to be stored, or were.

    due_us: microseconds UTC, None for now. count: how many calls. job_ids: empty before.
    """

    task: str
    queue: str
    priority: int
    tenant: str
    due_us: int | None
    count: int
    job_ids: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class RunEvent:
    """A handler is about to be called. attempt: 1 for the first. fence: which claim it is."""

    job_id: str
    task: str
    queue: str
    attempt: int
    fence: int


@dataclass(frozen=True, slots=True)
class RanEvent:
    """A handler returned or raised; nothing of it is stored yet.

    ending: Done, Failed, Snoozed, Cancelled, Settled. error: its type and text, or "".
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
    """It is stored what became of an attempt, or its claim was lost.

    error: type and text, or "". again_us: when it is tried again, microseconds UTC; None: never.
    late_us: how long after its job's deadline it ended; 0: in time, or there is none.
    """

    job_id: str
    task: str
    queue: str
    attempt: int
    fence: int
    error: str
    again_us: int | None
    late_us: int = 0


class Hooks:
    """Functions that are called at certain points, in the order in which they were added."""

    def __init__(self) -> None:
        """Have none. hear_runs: somebody wants to hear of each handler's run."""
        self._functions: dict[str, list[Callable[[Any], object]]] = {}
        self.hear_runs = False

    @overload
    def on(self, name: EnqueueName, /) -> HookDecorator[EnqueueEvent]: ...
    @overload
    def on(self, name: RunName, /) -> HookDecorator[RunEvent]: ...
    @overload
    def on(self, name: RanName, /) -> HookDecorator[RanEvent]: ...
    @overload
    def on(self, name: SettleName, /) -> HookDecorator[SettleEvent]: ...
    def on(self, name: str, /) -> HookDecorator[Any]:
        """Have a function called at some point: `app.on("dead")(function)`, or as a decorator.

        Raises: BadInput: there is no such point.
        """
        if name not in NAMES:
            raise BadInput(f"There is no hook {name!r:.40}.", hint=f"Use {', '.join(NAMES)}.")

        def add(function: Callable[[Any], object]) -> Any:  # noqa: ANN401  (see HookDecorator)
            self._functions.setdefault(name, []).append(function)
            self.hear_runs = self.has("before_run") or self.has("after_run")
            return function

        return add

    def has(self, name: str) -> bool:
        """Tell whether anyone wants to hear of this: events are made only then."""
        return name in self._functions

    def ask(self, name: str, event: object) -> None:
        """Call the functions; what one raises is raised here."""
        for function in self._functions.get(name, ()):
            function(event)

    def tell(self, name: str, event: object) -> None:
        """Call the functions; whatever one raises is logged, and changes nothing.

        Raises: JobTimeout: the time of the job was over in a hook before its handler.
        """
        for function in self._functions.get(name, ()):
            raised = contain(function, event)
            if isinstance(raised, Raised):
                log_raised(log, raised, "the hook %s failed", name)
                if name == "before_run" and isinstance(raised.error, JobTimeout):
                    raise raised.error
