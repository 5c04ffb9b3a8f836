"""Celery's words on dueline, so that modules port by changing an import.

Write `from dueline.contrib.celery import Celery, shared_task, chain, group, chord, crontab`. It is
a thin layer: tasks, workflows, schedules and results are dueline's, and `dueline worker shop:app`
runs them. What has no counterpart raises an error that says what to write instead.
"""

from typing import NoReturn

from dueline.contrib.celery.application import Celery, shared_task
from dueline.contrib.celery.canvas import chain, chord, group
from dueline.contrib.celery.result import AsyncResult
from dueline.contrib.celery.schedules import crontab, schedule
from dueline.contrib.celery.task import MaxRetriesExceededError, Signature, signature
from dueline.core.errors import JobTimeout as SoftTimeLimitExceeded

__all__ = [
    "AsyncResult",
    "Celery",
    "MaxRetriesExceededError",
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

_ELSEWHERE = {
    "Ignore": "raise dueline.Cancel(...)",
    "Reject": "raise dueline.Cancel(...), or dueline.Snooze(60) to run again",
    "Retry": "self.retry(...)",
    "Task": "functions with @app.task; share code by @app.middleware or plain functions",
    "chunks": "enqueue_many([...])",
    "current_app": "the application itself",
    "current_task": "bind=True and `self`",
    "signals": 'hooks, such as @app.on("dead")',
    "solar": "a task that runs daily and enqueues with using(due=...)",
    "states": "the names of states, such as 'SUCCESS'",
}


def __getattr__(name: str) -> NoReturn:
    """Name what to write instead of a name of Celery."""
    if name in _ELSEWHERE:
        raise ImportError(f"dueline.contrib.celery has no {name}. Use {_ELSEWHERE[name]}.")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
