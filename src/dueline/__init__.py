"""A durable, time-based priority job queue."""

from importlib import import_module
from typing import TYPE_CHECKING

from dueline.core.version import VERSION

if TYPE_CHECKING:
    from dueline.api.application import Dueline
    from dueline.api.chunks import Chunk
    from dueline.api.coordination import HeldLease
    from dueline.api.dependency import Dependency
    from dueline.api.job_handle import Job
    from dueline.api.jobs import MovedJobs
    from dueline.api.task import AsyncTask, Task
    from dueline.api.topics import Subscription, Topic
    from dueline.api.workflows import Flow
    from dueline.core.call_options import OrderKey, Unique
    from dueline.core.errors import (
        AppendUnknown,
        BadInput,
        BlobLost,
        CommitUnknown,
        ConfigError,
        Conflict,
        DuelineError,
        Duplicate,
        EnqueueUnknown,
        HistoryExpired,
        JobFailed,
        JobTimeout,
        LakeCorrupt,
        LakeUnavailable,
        LeaseLost,
        NotFound,
        QuotaExceeded,
        SchemaMismatch,
        StoreCorrupt,
        StoreMoved,
        StoreReplaced,
        StoreUnavailable,
    )
    from dueline.core.library_values import register_type
    from dueline.core.retry import Retry
    from dueline.durable.context import CalledJob, DurableContext
    from dueline.durable.errors import CallFailed, StepFailed, StepLost
    from dueline.jobs.explanation import Explanation
    from dueline.jobs.transaction import Transaction
    from dueline.streams.batch import Batch
    from dueline.streams.event import Event, Position
    from dueline.streams.stream import Stream
    from dueline.tasks.batch_handler import Call
    from dueline.tasks.batch_options import BatchOptions
    from dueline.tasks.failure_limits import Failures
    from dueline.tasks.handler import Context
    from dueline.tasks.progress import Progress
    from dueline.tasks.raised import Cancel, Snooze, Throttled
    from dueline.workflows.parts import chord, graph, group, pipeline, wait_for

__version__ = VERSION

__all__ = [
    "AppendUnknown",
    "AsyncTask",
    "BadInput",
    "Batch",
    "BatchOptions",
    "BlobLost",
    "Call",
    "CallFailed",
    "CalledJob",
    "Cancel",
    "Chunk",
    "CommitUnknown",
    "ConfigError",
    "Conflict",
    "Context",
    "Dependency",
    "Dueline",
    "DuelineError",
    "Duplicate",
    "DurableContext",
    "EnqueueUnknown",
    "Event",
    "Explanation",
    "Failures",
    "Flow",
    "HeldLease",
    "HistoryExpired",
    "Job",
    "JobFailed",
    "JobTimeout",
    "LakeCorrupt",
    "LakeUnavailable",
    "LeaseLost",
    "MovedJobs",
    "NotFound",
    "OrderKey",
    "Position",
    "Progress",
    "QuotaExceeded",
    "Retry",
    "SchemaMismatch",
    "Snooze",
    "StepFailed",
    "StepLost",
    "StoreCorrupt",
    "StoreMoved",
    "StoreReplaced",
    "StoreUnavailable",
    "Stream",
    "Subscription",
    "Task",
    "Throttled",
    "Topic",
    "Transaction",
    "Unique",
    "chord",
    "graph",
    "group",
    "pipeline",
    "register_type",
    "wait_for",
]

_PLACES = {
    "api.application": ("Dueline",),
    "api.chunks": ("Chunk",),
    "api.coordination": ("HeldLease",),
    "api.dependency": ("Dependency",),
    "api.job_handle": ("Job",),
    "api.jobs": ("MovedJobs",),
    "api.task": ("AsyncTask", "Task"),
    "api.topics": ("Subscription", "Topic"),
    "api.workflows": ("Flow",),
    "core.call_options": ("OrderKey", "Unique"),
    "core.errors": (
        "AppendUnknown",
        "BadInput",
        "BlobLost",
        "CommitUnknown",
        "ConfigError",
        "Conflict",
        "DuelineError",
        "Duplicate",
        "EnqueueUnknown",
        "HistoryExpired",
        "JobFailed",
        "JobTimeout",
        "LakeCorrupt",
        "LakeUnavailable",
        "LeaseLost",
        "NotFound",
        "QuotaExceeded",
        "SchemaMismatch",
        "StoreCorrupt",
        "StoreMoved",
        "StoreReplaced",
        "StoreUnavailable",
    ),
    "core.library_values": ("register_type",),
    "core.retry": ("Retry",),
    "durable.context": ("CalledJob", "DurableContext"),
    "durable.errors": ("CallFailed", "StepFailed", "StepLost"),
    "jobs.explanation": ("Explanation",),
    "jobs.transaction": ("Transaction",),
    "streams.batch": ("Batch",),
    "streams.event": ("Event", "Position"),
    "streams.stream": ("Stream",),
    "tasks.batch_handler": ("Call",),
    "tasks.batch_options": ("BatchOptions",),
    "tasks.handler": ("Context",),
    "tasks.failure_limits": ("Failures",),
    "tasks.raised": ("Cancel", "Snooze", "Throttled"),
    "tasks.progress": ("Progress",),
    "workflows.parts": ("chord", "graph", "group", "pipeline", "wait_for"),
}
"""The module of each public name; it is imported when the name is first used."""

if not TYPE_CHECKING:  # a checker knows the names from above

    def __getattr__(name: str) -> object:
        """Import a public name."""
        for module, names in _PLACES.items():
            if name in names:
                value = getattr(import_module(f"dueline.{module}"), name)
                globals()[name] = value
                return value
        raise AttributeError(f"module 'dueline' has no attribute {name!r}")

    def __dir__() -> list[str]:
        """List the public names, too."""
        return sorted({*globals(), *__all__})
