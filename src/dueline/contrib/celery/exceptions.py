"""The exceptions of Celery that exist in dueline."""

import builtins

from dueline.contrib.celery.task import Ignore, MaxRetriesExceededError, Reject
from dueline.contrib.celery.words import NAMES, names_elsewhere
from dueline.core.errors import JobTimeout as SoftTimeLimitExceeded

TimeoutError = builtins.TimeoutError  # noqa: A001  (Celery's name)

__all__ = ["Ignore", "MaxRetriesExceededError", "Reject", "SoftTimeLimitExceeded", "TimeoutError"]

__getattr__ = names_elsewhere(NAMES, __name__)
