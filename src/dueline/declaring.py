"""What a task is declared with."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from dueline.chunk import Chunk
from dueline.chunked import ChunkHandler
from dueline.clock import asked_instant_us, asked_span_us, duration_us
from dueline.config import module_name
from dueline.errors import BadInput
from dueline.handler import Handler
from dueline.options import Unique
from dueline.policy import Retry

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
    if not isinstance(retry, Retry | None):
        raise BadInput(f"retry={retry!r} is no policy.", hint="Write retry=Retry(...).")
    if chunk is None:
        return Handler(function, retry=retry or Retry(), **terms)
    return ChunkHandler(function, chunk=chunk, retry=retry or Retry(), **terms)


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
