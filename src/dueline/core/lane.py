"""One ordered run of jobs."""

from collections.abc import Iterable
from typing import Final, NamedTuple

PRIORITY_MIN: Final = -(2**31)
PRIORITY_MAX: Final = 2**31 - 1

DEAD_SUFFIX = "!dead"

LIMIT_MARK: Final = "\x1f"
"""Stands before each limit of a lane, behind its tenant; no tenant's name holds it."""


class Lane(NamedTuple):
    """The unit of atomicity: jobs of one queue, shard, bucket, priority and tenant.

    bucket: index of the time slice in which its jobs were born, `pos_us // width_us`.
    priority: any signed 32-bit integer, larger first.
    tenant: whose jobs they are, and what limits them: see `tenant_of` and `limits_of`.
    A job keeps its lane for life.
    """

    queue: str
    shard: int
    bucket: int
    priority: int
    tenant: str


class Pointer(NamedTuple):
    """An entry of the lane list: look at this lane from the listing bucket on."""

    listing: int
    lane: Lane


class Marks(NamedTuple):
    """What a (queue, shard) promises about its listing buckets; both only grow.

    swept: no pointer is left at or below it.
    closed: nothing acknowledged is listed anew at or below it.
    """

    swept: int
    closed: int


def bucket_of(instant_us: int, width_us: int) -> int:
    """Tell the bucket that an instant falls into."""
    return instant_us // width_us


def lane_tenant(tenant: str, limits: Iterable[str] = ()) -> str:
    """Write whose jobs a lane has, and what limits them, as its `tenant`.

    All jobs of a lane have the same limits, so whoever may have no more of them leaves out the
    lane, and reads nothing of it.
    """
    return LIMIT_MARK.join((tenant, *sorted(set(limits))))


def tenant_of(lane: Lane) -> str:
    """Name the tenant whose jobs a lane has."""
    return lane.tenant.partition(LIMIT_MARK)[0]


def limits_of(lane: Lane) -> tuple[str, ...]:
    """Name what limits the jobs of a lane, in order."""
    return tuple(lane.tenant.split(LIMIT_MARK)[1:]) if LIMIT_MARK in lane.tenant else ()


def dead_queue(queue: str) -> str:
    """Name the reserved queue that keeps the dead jobs of a queue."""
    return queue + DEAD_SUFFIX


def living_queue(queue: str) -> str:
    """Name the queue that a dead job came from; a living queue is its own."""
    return queue.removesuffix(DEAD_SUFFIX)
