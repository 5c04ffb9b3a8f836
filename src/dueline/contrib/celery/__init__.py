"""Celery's words on dueline, so that modules port by changing an import.

Write `from dueline.contrib.celery import Celery, shared_task, chain, group, chord, crontab`. It is
a thin layer: tasks, workflows, schedules and results are dueline's, and `dueline worker shop:app`
runs them. What has no counterpart raises an error that says what to write instead.
"""

from dueline.contrib.celery.application import Celery, shared_task
from dueline.contrib.celery.canvas import chain, chord, group
from dueline.contrib.celery.result import AsyncResult
from dueline.contrib.celery.schedules import crontab, schedule
from dueline.contrib.celery.task import (
    Ignore,
    MaxRetriesExceededError,
    Reject,
    Signature,
    signature,
)
from dueline.contrib.celery.words import NAMES, names_elsewhere
from dueline.core.errors import JobTimeout as SoftTimeLimitExceeded

__all__ = [
    "AsyncResult",
    "Celery",
    "Ignore",
    "MaxRetriesExceededError",
    "Reject",
    "Signature",
    "SoftTimeLimitExceeded",
    "chain",
    "chord",
    "crontab",
    "group",
    "schedule",
    "shared_task",
    "signature",
]

__getattr__ = names_elsewhere(NAMES, __name__)
