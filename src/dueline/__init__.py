"""The public names."""

from dueline.app import Dueline
from dueline.errors import (
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
    SchemaMismatch,
    StoreCorrupt,
    StoreUnavailable,
)
from dueline.handle import Job
from dueline.handler import Cancel, Context, Snooze
from dueline.options import Unique
from dueline.policy import Retry
from dueline.progress import Progress
from dueline.task import AsyncTask, Task
from dueline.transaction import Transaction
from dueline.version import VERSION

__version__ = VERSION

__all__ = [
    "AsyncTask",
    "BadInput",
    "Cancel",
    "CommitUnknown",
    "ConfigError",
    "Conflict",
    "Context",
    "Dueline",
    "DuelineError",
    "Duplicate",
    "EnqueueUnknown",
    "Job",
    "JobFailed",
    "JobTimeout",
    "LeaseLost",
    "NotFound",
    "Progress",
    "Retry",
    "SchemaMismatch",
    "Snooze",
    "StoreCorrupt",
    "StoreUnavailable",
    "Task",
    "Transaction",
    "Unique",
]
