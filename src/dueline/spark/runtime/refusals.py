"""Errors of dueline inside Spark's errors."""

import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from inspect import isgeneratorfunction
from typing import Any, Final, TypeVar

from dueline.core import errors
from dueline.core.errors import DuelineError
from dueline.core.text import one_line

_OURS: Final = re.compile(rf"{re.escape(errors.__name__)}\.(\w+): (.*)")
_HIDDEN: Final = "SPARK_HIDE_TRACEBACK"
"""Makes Spark's Python process send an error without its traceback."""

_CALLED: Final = (
    "__init__", "schema", "reader", "streamReader", "writer", "streamWriter", "pushFilters",
    "partitions", "read", "initialOffset", "latestOffset", "prepareForTriggerAvailableNow",
    "write", "commit", "abort",
)  # fmt: skip
"""What Spark calls."""

T = TypeVar("T")


def refusal_in(error: BaseException) -> DuelineError | None:
    """Return the dueline error that made a query fail; None if another error did.

    Args:
        error: The error that Spark raised, also by Spark Connect, or of a streaming query.
    """
    match = _OURS.search(str(error))
    kind = getattr(errors, match[1], None) if match else None
    if match is None or not isinstance(kind, type) or not issubclass(kind, DuelineError):
        return None
    return kind(match[2].strip())


def in_one_sentence(kind: type[T]) -> type[T]:
    """Let the methods that Spark calls tell an error of ours in one line, without a traceback."""
    for name in _CALLED:
        if function := vars(kind).get(name):
            setattr(kind, name, _telling(function))
    return kind


def is_in_spark() -> bool:
    """Return whether this is a Python process of Spark, not the user's."""
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    return main is not None and main.name.startswith("pyspark.")


def _telling(function: Callable[..., Any]) -> Callable[..., Any]:
    if isgeneratorfunction(function):

        @wraps(function)
        def through(*args: Any, **named: Any) -> Iterator[Any]:  # noqa: ANN401
            with _shortened():
                yield from function(*args, **named)

        return through

    @wraps(function)
    def call(*args: Any, **named: Any) -> Any:  # noqa: ANN401  (of any method)
        with _shortened():
            return function(*args, **named)

    return call


@contextmanager
def _shortened() -> Iterator[None]:
    """Hide the traceback of an error of ours in Spark's Python processes, which end with it."""
    try:
        yield
    except DuelineError as error:
        if is_in_spark():
            os.environ[_HIDDEN] = "1"
            cause = error.__cause__
            if cause is not None and not getattr(error, "__notes__", None):
                error.add_note(f"Caused by {type(cause).__name__}: {one_line(str(cause))}")
        raise
