"""Retiring lanes that nobody looks at."""

from dueline.core.clock import DAY_US
from dueline.monitor.lane_sweep import sweep_lanes
from tests.harness.world import World


def listed(world: World, queue: str) -> int:
    """Count a queue's pointers."""
    page = world.store.lanes(queue, 0, until_bucket=2**40, after=None, limit=100)
    return len(page.pointers)


def the_lanes_of_dead_jobs_are_retired_too_and_only_when_they_are_empty(world: World) -> None:
    job_id = world.put()
    world.die(job_id)
    for _ in range(3):
        world.clock.advance(us=2 * DAY_US)
        sweep_lanes(world.queues.engine, None)
    assert listed(world, "q!dead") == 1
    world.queues.retry(job_id)
    for _ in range(3):
        world.clock.advance(us=2 * DAY_US)
        sweep_lanes(world.queues.engine, None)
    assert listed(world, "q!dead") == 0
    assert world.queues.find(job_id).status == "ready"
