"""Functions that wrap the calls of handlers."""

import inspect
from collections.abc import Iterable
from typing import Any

from dueline.core.errors import BadInput


def read_middleware(middleware: object, *, is_async: bool) -> tuple[Any, ...]:
    """Return the functions that wrap a handler, outermost first.

    Args: is_async: whether it may be asynchronous.

    Raises: BadInput: one is no function of a Context.
    """
    read = tuple(middleware) if isinstance(middleware, Iterable) else (None,)
    if not all(map(callable, read)):
        raise BadInput(
            f"Middleware must be functions that return context managers (got {middleware!r:.80}).",
            hint="Use functions of a Context with @contextlib.contextmanager.",
        )
    for wrapper in read:
        if not is_async and inspect.isasyncgenfunction(inspect.unwrap(wrapper)):
            raise BadInput(
                f"The middleware {wrapper.__qualname__} is asynchronous, but its task is not.",
                hint="Use contextlib.contextmanager, or make the task a coroutine function.",
            )
    return read
