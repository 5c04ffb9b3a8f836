"""Runs what calls of a context consist of, in a thread: calls of the store, steps, short waits.

A call is a generator of these parts, so that plain and coroutine functions share one code.
"""

import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from contextvars import copy_context
from typing import Any, NamedTuple, TypeVar

from dueline.core.clock import SECOND_US
from dueline.core.errors import JobTimeout
from dueline.core.store import Store
from dueline.core.user_code import Raised, contain
from dueline.jobs.decisions import Decision, decide

T = TypeVar("T")


class Blocking(NamedTuple):
    """A call of the store."""

    call: Callable[[], Any]


class UserCall(NamedTuple):
    """A call of a step's function; its exception is returned as `Raised`."""

    function: Callable[..., Any]
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    timeout_us: int | None = None


class Deciding(NamedTuple):
    """A write of the log; its answer is whether it was applied."""

    store: Store
    decision: Decision


class Pause(NamedTuple):
    """A short wait. sleep: of the engine's clock, in seconds; for plain functions."""

    wait_us: int
    sleep: Callable[[float], None]


Part = Blocking | Deciding | UserCall | Pause
Call = Generator[Part, Any, T]


def drive(call: Call[T]) -> T:
    """Run a call in this thread; return its value."""
    answer: Any = None
    error: BaseException | None = None
    while True:
        try:
            part = call.send(answer) if error is None else call.throw(error)
        except StopIteration as end:
            value: T = end.value
            return value
        answer, error = None, None
        try:
            answer = run(part)
        except BaseException as raised:  # noqa: BLE001  (the call decides what it means)
            error = raised


def run(part: Part) -> Any:  # noqa: ANN401  (of any type)
    """Run a part in this thread."""
    match part:
        case Blocking(call):
            return call()
        case Deciding(store, decision):
            return decide(store, [decision])[0]
        case Pause(wait_us, sleep):
            sleep(wait_us / SECOND_US)
            return None
        case UserCall(function, args, kwargs, None):
            return contain(function, *args, **kwargs)
        case UserCall():
            return _within(part)


def _within(part: UserCall) -> Any:  # noqa: ANN401  (of any type)
    """Call a function in a thread of its own, which is left behind at the time limit."""
    answers: list[Any] = []
    context = copy_context()

    def call() -> None:
        answers.append(contain(context.run, part.function, *part.args, **part.kwargs))

    thread = threading.Thread(target=call, name="dueline-step", daemon=True)
    thread.start()
    thread.join((part.timeout_us or 0) / SECOND_US)
    return answers[0] if answers else Raised(JobTimeout("The step ran longer than its timeout."))
