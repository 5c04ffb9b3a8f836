"""What a task is declared with."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from dueline.api.config import module_name
from dueline.core.call_options import Unique
from dueline.core.clock import asked_instant_us, asked_span_us, duration_us
from dueline.core.errors import BadInput
from dueline.core.retry import Retry
from dueline.jobs.transaction import Transaction
from dueline.tasks.batch_handler import BatchHandler
from dueline.tasks.batch_options import Chunk
from dueline.tasks.handler import Handler

_NAME_CHARACTERS_MAX = 255

Call = Sequence[Any] | Mapping[str, Any]
"""The arguments of one of many calls: in order, or by name."""


def handler_of(
    function: Callable[..., Any],
    chunk: Chunk | None,
    *,
    retry: Retry | None,
    **terms: Any,  # noqa: ANN401
) -> Handler:
    """Make a task's handler. Args: chunk: how many jobs it takes at once; None for one."""
    if chunk is None:
        return Handler(function, retry=retry or Retry(), **terms)
    return BatchHandler(function, chunk=chunk, retry=retry or Retry(), **terms)


def check_retry(retry: object) -> None:
    """Make sure that this is a policy, or None."""
    if not isinstance(retry, Retry | None):
        raise BadInput(f"retry={retry!r} is no policy.", hint="Write retry=Retry(...).")


@dataclass(frozen=True, slots=True)
class Options:
    """Where and when a call runs.

    due_us: absolute; after_us: from the call on; neither: now. expires_us, expires_after_us:
    likewise; neither: never. window_us: starts are spread over so long.
    tx: the transaction that stores it; None for one of its own. wait_us: for room in a quota.
    deadline_us, due_within_us: in place of a priority, absolute, or from the call on.
    """

    queue: str
    priority: int = 0
    tenant: str = ""
    due_us: int | None = None
    after_us: int | None = None
    tx: Transaction | None = None
    expires_us: int | None = None
    expires_after_us: int | None = None
    window_us: int = 0
    unique: Unique | None = None
    tags: tuple[str, ...] = ()
    limits: tuple[str, ...] = ()
    wait_us: int = 0
    deadline_us: int | None = None
    due_within_us: int | None = None


def read_unique(unique: object, handler: Handler) -> Unique:
    """Read `unique`: a Unique, or its key; it names arguments that the task has."""
    if isinstance(unique, str):
        unique = Unique(unique)
    if not isinstance(unique, Unique):
        raise BadInput(f"unique={unique!r:.80} is no key.", hint='Write unique="hello:{to}".')
    unique.check(handler.arguments.names, handler.name)
    return unique


def task_name(function: object, name: object) -> str:
    """Name a task: as given, or after its function."""
    if not callable(function):
        raise BadInput(f"{function!r:.80} is no function.", hint="Write @app.task above a def.")
    if name is None:
        module, own = getattr(function, "__module__", ""), getattr(function, "__qualname__", "")
        name = f"{module_name(module)}.{own}" if own else ""
    if (
        not isinstance(name, str)
        or not 0 < len(name) <= _NAME_CHARACTERS_MAX
        or not (name.isprintable())
    ):
        raise BadInput(
            f"{name!r:.80} cannot name a task.",
            hint=f"Give name=, one line of up to {_NAME_CHARACTERS_MAX} characters.",
        )
    return name


def limits_us(
    timeout: timedelta | float | None, kill_after: timedelta | float | None
) -> tuple[int | None, int | None]:
    """Check how long a handler may run: before it is interrupted, before it is killed."""
    timeout_us = None if timeout is None else duration_us(timeout)
    if timeout_us is not None and timeout_us <= 0:
        raise BadInput(f"timeout={timeout!r} leaves no time to run.")
    kill_after_us = None if kill_after is None else duration_us(kill_after)
    if kill_after_us is not None and kill_after_us <= (timeout_us or 0):
        raise BadInput(
            f"kill_after={kill_after!r} leaves no time, with timeout={timeout!r}.",
            hint="A handler is interrupted first, and killed later if it does not end.",
        )
    return timeout_us, kill_after_us


def read_deadline(deadline: object, priority: object) -> dict[str, int | None]:
    """Read `deadline`: an aware datetime, a timedelta or seconds; None: there is a priority."""
    if deadline is None:
        return {"deadline_us": None, "due_within_us": None}
    if priority is not None:
        raise BadInput("A deadline takes the place of a priority.", hint="Give one of them.")
    if isinstance(deadline, datetime):
        return {"deadline_us": asked_instant_us(deadline, "deadline"), "due_within_us": None}
    return {"deadline_us": None, "due_within_us": asked_span_us(deadline, "deadline")}


def read_expiry(expires: object) -> dict[str, int | None]:
    """Read `expires`: an aware datetime, a timedelta or seconds."""
    if isinstance(expires, datetime):
        return {"expires_us": asked_instant_us(expires, "expires"), "expires_after_us": None}
    return {"expires_us": None, "expires_after_us": asked_span_us(expires, "expires")}


def as_call(call: Call) -> tuple[Sequence[Any], Mapping[str, Any]]:
    """Tell a call's positional arguments and its named ones."""
    if isinstance(call, Mapping):
        return (), call
    if not isinstance(call, (tuple, list)):
        raise BadInput(
            f"A call is given as {type(call).__name__}, not as a tuple of its arguments.",
            hint='Write [("a",), ("b",)] for a task of one argument.',
        )
    return call, {}
