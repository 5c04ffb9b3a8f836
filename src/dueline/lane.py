"""One ordered run of jobs."""

from typing import NamedTuple

DEAD_SUFFIX = "!dead"


class Lane(NamedTuple):
    """The unit of atomicity: jobs of one queue, shard, bucket, priority and tenant.

    bucket: index of the time slice in which its jobs were born, `pos_us // width_us`.
    priority: any signed 32-bit integer, larger first.
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


def dead_queue(queue: str) -> str:
    """Name the reserved queue that keeps the dead jobs of a queue."""
    return queue + DEAD_SUFFIX


def living_queue(queue: str) -> str:
    """Name the queue that a dead job came from; a living queue is its own."""
    return queue.removesuffix(DEAD_SUFFIX)
