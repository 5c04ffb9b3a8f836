"""A durable, time-based priority job queue."""

from dueline.api.application import Dueline
from dueline.api.coordination import HeldLease
from dueline.api.job_handle import Job
from dueline.api.task import AsyncTask, Task
from dueline.api.workflows import Flow
from dueline.core.call_options import Unique
from dueline.core.errors import (
    AppendUnknown,
    BadInput,
    CommitUnknown,
    ConfigError,
    Conflict,
    DuelineError,
    Duplicate,
    EnqueueUnknown,
    JobFailed,
    JobTimeout,
    LeaseLost,
    NotFound,
    QuotaExceeded,
    SchemaMismatch,
    StoreCorrupt,
    StoreReplaced,
    StoreUnavailable,
)
from dueline.core.retry import Retry
from dueline.core.version import VERSION
from dueline.jobs.explanation import Explanation
from dueline.jobs.transaction import Transaction
from dueline.streams.batch import Batch
from dueline.streams.event import Event, Position
from dueline.streams.stream import Stream
from dueline.tasks.batch_handler import Call
from dueline.tasks.batch_options import BatchOptions
from dueline.tasks.handler import Cancel, Context, Snooze, Throttled
from dueline.tasks.progress import Progress
from dueline.workflows.parts import chord, graph, group, pipeline, wait_for

__version__ = VERSION

__all__ = [
    "AppendUnknown",
    "AsyncTask",
    "BadInput",
    "Batch",
    "BatchOptions",
    "Call",
    "Cancel",
    "CommitUnknown",
    "ConfigError",
    "Conflict",
    "Context",
    "Dueline",
    "DuelineError",
    "Duplicate",
    "EnqueueUnknown",
    "Event",
    "Explanation",
    "Flow",
    "HeldLease",
    "Job",
    "JobFailed",
    "JobTimeout",
    "LeaseLost",
    "NotFound",
    "Position",
    "Progress",
    "QuotaExceeded",
    "Retry",
    "SchemaMismatch",
    "Snooze",
    "StoreCorrupt",
    "StoreReplaced",
    "StoreUnavailable",
    "Stream",
    "Task",
    "Throttled",
    "Transaction",
    "Unique",
    "chord",
    "graph",
    "group",
    "pipeline",
    "wait_for",
]
