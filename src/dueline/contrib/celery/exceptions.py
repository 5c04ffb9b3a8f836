"""The exceptions of Celery that exist in dueline."""

import builtins
from typing import NoReturn

from dueline.contrib.celery.task import MaxRetriesExceededError
from dueline.contrib.celery.words import NAMES, refuse_name
from dueline.core.errors import JobTimeout as SoftTimeLimitExceeded

TimeoutError = builtins.TimeoutError  # noqa: A001  (Celery's name)

__all__ = ["MaxRetriesExceededError", "SoftTimeLimitExceeded", "TimeoutError"]


def __getattr__(name: str) -> NoReturn:
    """Name what to write instead of a name of Celery."""
    refuse_name(name, NAMES, __name__)
