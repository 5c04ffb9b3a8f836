"""Errors of dueline inside Spark's errors."""

import re
from typing import Final

from dueline.core import errors
from dueline.core.errors import DuelineError

_OURS: Final = re.compile(rf"{re.escape(errors.__name__)}\.(\w+): (.*)")


def refusal_in(error: Exception) -> DuelineError | None:
    """Return the dueline error that made a query fail; None if another error did."""
    match = _OURS.search(str(error))
    kind = getattr(errors, match[1], None) if match else None
    if match is None or not isinstance(kind, type) or not issubclass(kind, DuelineError):
        return None
    return kind(match[2].strip())
