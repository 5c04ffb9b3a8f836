"""Declarations of tasks."""

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any

from dueline.api.config import module_name
from dueline.core.blobs import LargeAbove
from dueline.core.call_options import OrderKey, Unique
from dueline.core.clock import duration_us
from dueline.core.constraints import check_value
from dueline.core.errors import BadInput
from dueline.core.requirements import Requirements, read_requirements
from dueline.core.retry import Retry
from dueline.tasks.batch_handler import BatchHandler
from dueline.tasks.batch_options import BatchOptions
from dueline.tasks.handler import Handler
from dueline.tasks.payload_codecs import Payloads

_NAME_CHARACTERS_MAX = 255

Call = Sequence[Any] | Mapping[str, Any]
"""The arguments of a call: positional ones, or named ones."""


def handler_of(
    function: Callable[..., Any],
    batch: BatchOptions | None,
    *,
    retry: Retry | None,
    **terms: Any,  # noqa: ANN401
) -> Handler:
    """Return the handler of a task. batch: options of its batches; None for single jobs."""
    if batch is None:
        return Handler(function, retry=retry or Retry(), **terms)
    return BatchHandler(function, batch=batch, retry=retry or Retry(), **terms)


def required_by(requires: object, task: str, queue: str) -> Requirements | None:
    """Return what a task of a queue requires of its store; None for nothing."""
    return None if requires is None else Requirements(read_requirements(requires), task, queue)


def check_retry(retry: object) -> None:
    """Raise BadInput if this is neither a policy nor None."""
    if not isinstance(retry, Retry | None):
        raise BadInput(
            f"`retry` must be a Retry (got {retry!r:.80}).", hint="Use retry=Retry(attempts=5)."
        )


def check_large(large: object, payloads: Payloads) -> None:
    """Raise BadInput if this is no size above which values are blobs, or there is no folder."""
    if large is None:
        return
    check_value(large, LargeAbove, "large")
    if payloads.blobs is None:
        raise BadInput(
            "`large` needs a folder.", hint='Write Dueline(..., blobs="file:///srv/blobs").'
        )


def check_takes_event(handler: Handler) -> None:
    """Raise BadInput if a handler cannot be called with the value of an event alone."""
    try:
        handler.arguments.named((None,), {})
    except BadInput as error:
        raise BadInput(
            f"The task {handler.name} has `on=` and must take one argument: {error.message}",
            hint="Write def welcome(user): ..., with the value of the event.",
        ) from error


def read_unique(unique: object, handler: Handler) -> Unique:
    """Return the unique key of the argument `unique`, a Unique or a string."""
    if isinstance(unique, str):
        unique = Unique(unique)
    if not isinstance(unique, Unique):
        raise BadInput(
            f"`unique` must be a string or Unique (got {unique!r:.80}).",
            hint='Use unique="hello:{to}".',
        )
    unique.check(handler.arguments.names, handler.name)
    return unique


def read_order_key(key: object, handler: Handler) -> OrderKey:
    """Return the order key of the argument `order_key`, an OrderKey or a string."""
    if isinstance(key, str):
        key = OrderKey(key)
    if not isinstance(key, OrderKey):
        raise BadInput(
            f"`order_key` must be a string or OrderKey (got {key!r:.80}).",
            hint='Use order_key="acct-{account}".',
        )
    key.check(handler.arguments.names, handler.name)
    return key


def task_name(function: object, name: object) -> str:
    """Return the name of a task: as given, or from its function."""
    _check_function(function, is_named=name is not None)
    if name is None:
        module, own = getattr(function, "__module__", ""), getattr(function, "__qualname__", "")
        name = f"{module_name(module)}.{own}" if own else ""
    if (
        not isinstance(name, str)
        or not 0 < len(name) <= _NAME_CHARACTERS_MAX
        or not (name.isprintable())
    ):
        raise BadInput(
            f"{name!r:.80} is not a valid task name.",
            hint=f"Use `name` with 1 to {_NAME_CHARACTERS_MAX} printable characters.",
        )
    return name


def _check_function(function: object, *, is_named: bool) -> None:
    """Raise BadInput for what a worker in another process cannot find or call."""
    if isinstance(function, type):
        raise BadInput(
            f"A task must be a function (got the class {function.__name__}).",
            hint="Write a function that creates the object and uses it.",
        )
    # A partial has no name, and is a routine from Python 3.14 on.
    own = getattr(function, "__qualname__", None)
    if own is None or inspect.ismethod(function) or not inspect.isroutine(function):
        raise BadInput(
            f"A task must be a function (got {function!r:.80}).",
            hint="Use @app.task above a def at the top level of a module.",
        )
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise BadInput(
            f"The task {own} is a generator, whose body would not run.",
            hint="Replace `yield`: return a list, or enqueue a job for each item.",
        )
    is_in_class = inspect.isfunction(function) and "." in own.rpartition("<locals>.")[2]
    if is_in_class and _first_parameter(function) in ("self", "cls"):
        raise BadInput(
            f"The task {own} is a method, and a worker has no object to call it on.",
            hint="Use a function at the top level of a module, and pass what it needs.",
        )
    if "<" in own and not is_named:
        what = "a lambda" if own.endswith("<lambda>") else "defined inside a function"
        raise BadInput(
            f"The task {own} is {what}, so that no worker can import it under its name.",
            hint="Move it to the top level of a module, or give it a name=.",
        )


def _first_parameter(function: Callable[..., Any]) -> str:
    return next(iter(inspect.signature(function).parameters), "")


def limits_us(
    timeout: timedelta | float | None, kill_after: timedelta | float | None
) -> tuple[int | None, int | None]:
    """Return the durations before a handler is interrupted and before it is killed."""
    timeout_us = None if timeout is None else duration_us(timeout)
    if timeout_us is not None and timeout_us <= 0:
        raise BadInput(f"`timeout` must be more than 0 s (got {timeout!r}).", hint="Use 30.")
    kill_after_us = None if kill_after is None else duration_us(kill_after)
    if kill_after_us is not None and kill_after_us <= (timeout_us or 0):
        raise BadInput(
            f"`kill_after` must be longer than `timeout` ({timeout!r}; got {kill_after!r}).",
            hint="A handler is first interrupted, and then killed if it does not end.",
        )
    return timeout_us, kill_after_us


def as_call(call: Call) -> tuple[Sequence[Any], Mapping[str, Any]]:
    """Return the positional and the named arguments of a call."""
    if isinstance(call, Mapping):
        return (), call
    if not isinstance(call, (tuple, list)):
        raise BadInput(
            f"A call must be a tuple, list or dict of its arguments (got {type(call).__name__}).",
            hint='Use [("a",), ("b",)] for a task of one argument.',
        )
    return call, {}


def are_names(names: Iterable[object]) -> bool:
    """Return whether all are strings that are not empty."""
    return all(isinstance(name, str) and name for name in names)


def check_named_call(name: object, args: object, kwargs: object) -> None:
    """Check what `send` was given: a string would be read as many arguments, a dict as its keys."""
    if not isinstance(name, str):
        raise BadInput(
            f"`name` must be the name of a task (got {name!r:.80}).",
            hint="Use task.enqueue(...) for a task of this application.",
        )
    if not isinstance(args, list | tuple):
        raise BadInput(
            f"`args` must be a list or tuple (got {type(args).__name__}).",
            hint=f'Use app.send("{name}", [5]), and kwargs={{...}} for named arguments.',
        )
    if not isinstance(kwargs, Mapping) or not all(isinstance(key, str) for key in kwargs):
        raise BadInput(
            f"`kwargs` must be a dict by name (got {kwargs!r:.80}).",
            hint=f'Use app.send("{name}", kwargs={{"to": "ann"}}).',
        )
