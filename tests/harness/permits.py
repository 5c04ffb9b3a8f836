"""Permits that a test takes and reads."""

from dueline.core.clock import SECOND_US
from dueline.limits.permits import HeldPermits
from tests.harness.world import World


def permits_of(world: World, worker: str = "w1") -> HeldPermits:
    return HeldPermits(world.queues.engine, worker)


def take(permits: HeldPermits, *names: str, jobs: int = 1, priority: int = 0) -> int:
    """Begin a claim with nothing held, and take permits."""
    permits.begin(list, 100)
    granted = permits.take(names, jobs, priority=priority, queue="q", lease_us=30 * SECOND_US)
    return granted.jobs
