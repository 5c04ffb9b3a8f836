"""Refusals of tasks on Spark, without Spark's traceback."""

import re
from typing import Final

from dueline.core import errors
from dueline.core.errors import DuelineError

_OURS: Final = re.compile(rf"{re.escape(errors.__name__)}\.(\w+): (.*)")


def refusal_in(error: Exception) -> DuelineError | None:
    """Return the error of ours that made a query fail; None where it was none of ours."""
    match = _OURS.search(str(error))
    kind = getattr(errors, match[1], None) if match else None
    if match is None or not isinstance(kind, type) or not issubclass(kind, DuelineError):
        return None
    return kind(match[2].strip())
