"""Lanes: the ordered partitions of a queue."""

from collections.abc import Iterable
from typing import Final, NamedTuple

PRIORITY_MIN: Final = -(2**31)
PRIORITY_MAX: Final = 2**31 - 1

DEAD_SUFFIX = "!dead"

GUARD_US: Final = 2_000_000
"""Distance of `closed` from the present. Makes rule E4 rare; correctness does not need it."""

LIMIT_MARK: Final = "\x1f"
"""Separates the tenant and limits of a lane; no tenant's name contains it."""

TASK_MARK: Final = f"{LIMIT_MARK}\x1e"
"""Separates the tenant and limits of a lane from the task of its jobs, if all have the same.
Versions that do not know it read a limit, which lets one of these jobs run at a time.
"""

CODEC_MARK: Final = "\x1e"
"""Separates the task of a lane from the codec of its jobs, unless all versions know that."""

CODEC_MAX: Final = 3
"""Largest number of the codecs that all versions know."""


class Lane(NamedTuple):
    """The unit of atomicity: jobs of one queue, shard, bucket, priority and tenant.

    bucket: index of the time slice of its jobs' insert, `pos_us // width_us`.
    priority: any signed 32-bit integer, larger first.
    tenant: tenant and limits of the jobs; see `tenant_of` and `limits_of`. Lanes of jobs that a
      worker did not know also have the key of their task; see `task_of`.
    A job never changes its lane.
    """

    queue: str
    shard: int
    bucket: int
    priority: int
    tenant: str


class Pointer(NamedTuple):
    """An entry of the lane list: read this lane from the listing bucket on."""

    listing: int
    lane: Lane


class Marks(NamedTuple):
    """The watermarks of a (queue, shard) in listing buckets; both only grow.

    swept: no pointer is left at or below it.
    closed: no new pointer is acknowledged at or below it.
    """

    swept: int
    closed: int


def bucket_of(instant_us: int, width_us: int) -> int:
    """Return the bucket of a timestamp."""
    return instant_us // width_us


def closing_bucket(now_us: int, width_us: int) -> int:
    """Return the last bucket that a sweep closes."""
    return bucket_of(now_us - GUARD_US, width_us) - 1


def lane_tenant(tenant: str, limits: Iterable[str] = (), task: str = "") -> str:
    """Return the `tenant` of a lane: the tenant and limits of its jobs, or also their task's key.

    All jobs of a lane have the same limits, so a worker without permits skips the whole lane. So
    does one that does not know their task (rule P10).
    """
    names = LIMIT_MARK.join((tenant, *sorted(set(limits))))
    return f"{names}{TASK_MARK}{task}" if task else names


def tenant_of(lane: Lane) -> str:
    """Return the tenant of a lane."""
    return lane.tenant.partition(LIMIT_MARK)[0]


def limits_of(lane: Lane) -> tuple[str, ...]:
    """Return the limits of a lane, in order."""
    if LIMIT_MARK not in lane.tenant:
        return ()
    return tuple(lane.tenant.partition(TASK_MARK)[0].split(LIMIT_MARK)[1:])


def limits_text(lane: Lane) -> str:
    """Return the limits of a lane as one text, separated by LIMIT_MARK."""
    return lane.tenant.partition(TASK_MARK)[0].partition(LIMIT_MARK)[2]


def task_of(lane: Lane) -> str:
    """Return the key of the task of a lane's jobs, see `task_key`; empty for jobs of any."""
    return lane.tenant.partition(TASK_MARK)[2]


def task_key(task: str, codec: int) -> str:
    """Return what a worker must know to run a job: its task, and its codec if that is special."""
    return f"{task}{CODEC_MARK}{codec}" if codec > CODEC_MAX else task


def with_task(lane: Lane, task: str, codec: int) -> Lane:
    """Return the lane beside a lane whose jobs only workers claim that know a task."""
    return lane._replace(
        tenant=lane_tenant(tenant_of(lane), limits_of(lane), task_key(task, codec))
    )


def dead_queue(queue: str) -> str:
    """Return the reserved queue of the dead-letter jobs of a queue."""
    return queue + DEAD_SUFFIX


def living_queue(queue: str) -> str:
    """Return the queue of a dead-letter queue; other queues are returned unchanged."""
    return queue.removesuffix(DEAD_SUFFIX)
