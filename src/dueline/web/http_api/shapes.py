"""Bodies, queries and answers of several operations."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from dueline.api.dependency import JOBS_MAX
from dueline.core.call_options import Mode, WaitFailures
from dueline.core.clock import to_datetime
from dueline.core.queue_settings import DeadInOrder
from dueline.web.http_api.frame import Input

Seconds = Annotated[float, Meta(ge=0, le=316_224_000, description="In seconds.")]
Time = Annotated[datetime, Meta(tz=True)]
TimeOrSeconds = Annotated[
    datetime | float, Meta(description="A timestamp with time zone, or seconds from now.")
]
Name = Annotated[str, Meta(min_length=1, max_length=512)]
Limits = Annotated[
    list[str] | dict[str, int],
    Meta(description="Names of limits, or how many units the job takes of each."),
]


class Done(msgspec.Struct):
    """The change is stored."""

    done: bool = True


class UniqueKey(Input):
    """A unique key, and what a call does while another job holds it."""

    key: Name
    mode: Mode = "reject"
    within: Seconds | None = None


class OrderedBy(Input):
    """An order key, and what a dead job of it does to the others; null: as the queue says."""

    key: Name
    dead: DeadInOrder | None = None


class DependsOn(Input):
    """Jobs and workflows that must end before a job starts, and what happens if one fails."""

    jobs: Annotated[list[str], Meta(min_length=1, max_length=JOBS_MAX)]
    failures: WaitFailures = "stop"


class RetryPolicy(Input):
    """Attempts and waits instead of the task's own; waits in seconds."""

    attempts: Annotated[int, Meta(ge=1, le=100)] | None = None
    base: Seconds = 2.0
    cap: Seconds = 3600.0
    delays: Annotated[Sequence[Seconds], Meta(max_length=100)] = ()


class NewJob(Input):
    """A call of a task, with its options."""

    task: Name
    args: Sequence[Any] = ()
    kwargs: dict[str, Any] = msgspec.field(default_factory=dict)
    queue: Name | None = None
    due: Time | None = None
    after: Seconds | None = None
    priority: int | None = None
    tenant: str | None = None
    tags: list[str] | None = None
    limits: Limits | None = None
    unique: UniqueKey | None = None
    expires: TimeOrSeconds | None = None
    deadline: TimeOrSeconds | None = None
    window: Seconds | None = None
    timeout: Seconds | None = None
    keep: Seconds | None = None
    retry: RetryPolicy | None = None
    headers: dict[str, str] | None = None
    needs: dict[str, str | int] | None = None
    order_key: OrderedBy | None = None
    depends_on: DependsOn | None = None


class Enqueued(msgspec.Struct):
    """A stored job. checked: whether the arguments were checked against a registered task.

    repeated: whether an earlier request with the same Idempotency-Key stored it.
    """

    id: str
    checked: bool
    repeated: bool = False


class JobSummary(msgspec.Struct, kw_only=True):
    """A job in a list; a timestamp may be null."""

    id: str
    state: str
    queue: str
    task: str
    tenant: str
    priority: int
    due: datetime | None
    next: datetime | None
    enqueued: datetime | None
    claimed: datetime | None
    started: datetime | None
    ended: datetime | None
    claims: int
    errors: int
    crashes: int
    worker: str
    error: str
    tags: tuple[str, ...]
    limits: tuple[str, ...]


class JobList(msgspec.Struct):
    """A page of jobs. next: pass it as `cursor` to read on; null at the end.

    is_capped: not all rows were read; `next` reads on where that is possible.
    """

    jobs: list[JobSummary]
    next: str | None
    is_capped: bool


class AttemptSummary(msgspec.Struct):
    """An attempt that ended. fence: number of its claim, as handlers see it."""

    fence: int
    outcome: str
    error: str
    worker: str
    claimed: datetime | None
    started: datetime | None
    ended: datetime | None


class ProgressReport(msgspec.Struct):
    """What the handler reported last."""

    done: float
    total: float
    note: str


class JobDetails(JobSummary, kw_only=True):
    """All that is stored of a job. hidden: why there are no arguments; empty where there are.

    Arguments and results whose name looks like a secret are `[redacted]`.
    """

    arguments: Any
    hidden: str
    result: Any
    progress: ProgressReport | None
    traceback: str
    unique: str
    needs: dict[str, str | int]
    order_key: str
    order_first: str
    workflow: str
    attempts: list[AttemptSummary]


def time_of(at_us: int | None) -> datetime | None:
    """Return microseconds as a timestamp; None for none."""
    return to_datetime(at_us) if at_us else None
