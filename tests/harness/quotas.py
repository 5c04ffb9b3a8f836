"""Enqueues under a quota of a queue."""

from dueline.core.clock import SECOND_US
from dueline.core.errors import QuotaExceeded
from dueline.core.job import Job
from dueline.core.queue_settings import (
    Quota,
)
from dueline.jobs.queue import EnqueueRequest, Queues
from tests.harness.world import World

DEPTH = Quota(depth=5)


def enqueue(queues: Queues, count: int = 1, *, tenant: str = "", wait_s: float = 0) -> int:
    """Put in so many; tell how many were taken in."""
    wait_us = round(wait_s * SECOND_US)
    bodies = [b"[1]"] * count
    try:
        return len(
            queues.enqueue(EnqueueRequest("q", "t", 0, bodies, tenant=tenant, wait_us=wait_us))
        )
    except QuotaExceeded:
        return 0


def waiting(world: World) -> list[Job]:
    """List the jobs that wait."""
    return [job for job in world.queues.engine.jobs_of("q") if not job.is_claimed()]
