"""Lanes: the ordered partitions of a queue."""

from collections.abc import Iterable
from functools import lru_cache
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

NEEDS_MARK: Final = f"{LIMIT_MARK}\x1c"
"""Separates the tenant of a lane from what its jobs need of a worker, before all limits."""

COST_MARK: Final = "\x1d"
"""Ends the name of a limit in a lane if each of its jobs takes units of its own, which are in the
options of the job. In the limits of a call, the number of units follows; no key contains the mark.
"""

CODEC_MARK: Final = "\x1e"
"""Separates the task of a lane from the codec of its jobs, unless all versions know that, and from
the workers that cannot take their arguments.
"""

CODEC_MAX: Final = 3
"""Largest number of the codecs that all versions know."""

REFUSED_MAX: Final = 32
"""Maximum number of signatures that a lane names; then the oldest is dropped."""

WAIT_STEPS: Final = 16
"""Number of lanes of one task that a wait for a fitting worker uses at most, by their ends."""


class Lane(NamedTuple):
    """The unit of atomicity: jobs of one queue, shard, bucket, priority and tenant.

    bucket: index of the time slice of its jobs' insert, `pos_us // width_us`.
    priority: any signed 32-bit integer, larger first.
    tenant: tenant, needs and limits of the jobs; see `tenant_of`, `needs_text` and `limits_of`.
      Lanes of jobs that a worker did not know also have the key of their task; see `task_of`.
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
    does one that does not know their task (rule P10). Units of limits are left out.
    """
    names = LIMIT_MARK.join((tenant, *sorted({_without_units(limit) for limit in limits})))
    return f"{names}{TASK_MARK}{task}" if task else names


def tenant_with_needs(tenant: str, needs: str) -> str:
    """Return the `tenant` of a lane whose jobs need something of a worker; see `worker_needs`.

    Args:
        tenant: The tenant alone.
        needs: The needs as text; empty if there are none.
    """
    return f"{tenant}{NEEDS_MARK}{needs}" if needs else tenant


def needs_text(lane: Lane) -> str:
    """Return what the jobs of a lane need of a worker, as text; empty for nothing."""
    return lane.tenant.partition(NEEDS_MARK)[2].partition(LIMIT_MARK)[0]


def tenant_of(lane: Lane) -> str:
    """Return the tenant of a lane."""
    return lane.tenant.partition(LIMIT_MARK)[0]


def limits_of(lane: Lane) -> tuple[str, ...]:
    """Return the names of the limits of a lane, in order."""
    text = lane.tenant
    if LIMIT_MARK not in text:
        return ()
    if COST_MARK in text:
        text = text.replace(COST_MARK, "")
    names = text.partition(TASK_MARK)[0].split(LIMIT_MARK)
    return tuple(names[2:] if NEEDS_MARK in text else names[1:])


def has_costs(lane: Lane) -> bool:
    """Return whether jobs of a lane take numbers of units of their own from its limits."""
    return COST_MARK in lane.tenant


def limits_text(lane: Lane) -> str:
    """Return the limits of a lane as one text, separated by LIMIT_MARK."""
    names = lane.tenant.partition(TASK_MARK)[0].partition(LIMIT_MARK)[2]
    return names.partition(LIMIT_MARK)[2] if NEEDS_MARK in lane.tenant else names


def _without_units(limit: str) -> str:
    name, mark, _ = limit.partition(COST_MARK)
    return name + mark


def task_of(lane: Lane) -> str:
    """Return the key of the task of a lane's jobs, see `task_key`; empty for jobs of any."""
    return lane.tenant.partition(TASK_MARK)[2]


def task_key(task: str, codec: int) -> str:
    """Return what a worker must know to run a job: its task, and its codec if that is special."""
    return f"{task}{CODEC_MARK}{codec}" if codec > CODEC_MAX else task


def with_task(lane: Lane, task: str, codec: int) -> Lane:
    """Return the lane beside a lane whose jobs only workers claim that know a task."""
    return _with_key(lane, task_key(task, codec))


class TaskKey(NamedTuple):
    """What a worker must know to run the jobs of a lane, see `task_key`.

    Attributes:
      task: The task.
      codec: The number of the codec of its arguments; 0 for one that all versions know.
      refused: The signatures of the task that cannot take these arguments (rule P13).
      until_us: Until when the jobs wait for a worker with another signature.
    """

    task: str
    codec: int = 0
    refused: tuple[str, ...] = ()
    until_us: int = 0

    @property
    def text(self) -> str:
        """The key as a lane names it."""
        if not self.refused:
            return task_key(self.task, self.codec)
        codec = str(self.codec) if self.codec > CODEC_MAX else ""
        return CODEC_MARK.join((self.task, codec, str(self.until_us), *self.refused))


@lru_cache(1024)
def read_key(key: str) -> TaskKey:
    """Read the key of a task."""
    task, *rest = key.split(CODEC_MARK)
    codec, until_us = (*rest, "", "")[:2]
    return TaskKey(task, int(codec or 0), tuple(rest[2:]), int(until_us or 0))


def after_refusal(
    lane: Lane, task: str, codec: int, signature: str, *, wait_us: int, now_us: int
) -> Lane:
    """Return the lane in which a job waits for a worker with another signature of its task.

    Args:
      lane: The lane of the job.
      task: Its task.
      codec: The codec of its arguments.
      signature: That of the worker that cannot take the arguments of the job.
      wait_us: How long it waits; the end is rounded up, so that few lanes are used.
      now_us: The current time.
    """
    before = read_key(task_of(lane)).refused
    refused = (*(other for other in before if other != signature), signature)[-REFUSED_MAX:]
    step_us = max(1, wait_us // WAIT_STEPS)
    until_us = -(-(now_us + wait_us) // step_us) * step_us
    return _with_key(lane, TaskKey(task, codec, refused, until_us).text)


def _with_key(lane: Lane, key: str) -> Lane:
    return lane._replace(tenant=f"{lane.tenant.partition(TASK_MARK)[0]}{TASK_MARK}{key}")


def dead_queue(queue: str) -> str:
    """Return the reserved queue of the dead-letter jobs of a queue."""
    return queue + DEAD_SUFFIX


def living_queue(queue: str) -> str:
    """Return the queue of a dead-letter queue; other queues are returned unchanged."""
    return queue.removesuffix(DEAD_SUFFIX)
