"""The public names."""

import gc

# Of what is loaded here nothing is garbage; looking for some took a sixth of the time.
_collects = gc.isenabled()
gc.disable()

from dueline.app import Dueline
from dueline.batch import Batch
from dueline.chunk import Chunk
from dueline.chunked import Call
from dueline.coordination import HeldLease
from dueline.errors import (
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
from dueline.event import Event, Position
from dueline.explanation import Explanation
from dueline.handle import Job
from dueline.handler import Cancel, Context, Snooze, Throttled
from dueline.options import Unique
from dueline.policy import Retry
from dueline.progress import Progress
from dueline.steps import chord, graph, group, pipeline, wait_for
from dueline.stream import Stream
from dueline.task import AsyncTask, Task
from dueline.transaction import Transaction
from dueline.version import VERSION
from dueline.workflows import Flow

if _collects:
    gc.enable()

__version__ = VERSION

__all__ = [
    "AppendUnknown",
    "AsyncTask",
    "BadInput",
    "Batch",
    "Call",
    "Cancel",
    "Chunk",
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
