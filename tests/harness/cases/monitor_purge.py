"""Forgetting dead jobs that lie longer than their queue keeps them."""

from dueline.core.clock import DAY_US, SECOND_US
from dueline.core.job import JobId
from dueline.monitor.retention import expire_dead_jobs
from tests.harness.world import World

KEPT_US = 3 * DAY_US


def dead(world: World, queue: str = "q", *, priority: int = 0) -> JobId:
    """Have a job die now."""
    job_id = world.put(queue=queue, priority=priority)
    world.die(job_id)
    return job_id


def left(world: World, *queues: str) -> set[JobId]:
    """List the dead jobs that are there."""
    return {job.id for queue in queues for job in world.queues.engine.jobs_of(f"{queue}!dead")}


def the_dead_go_when_they_are_older_than_they_are_kept_and_no_others(world: World) -> None:
    # O7
    gone = {dead(world), dead(world, priority=3)}
    world.queues.engine.catalog.configure("q", dead_us=KEPT_US)
    world.clock.advance(us=2 * SECOND_US)
    young, living = dead(world), world.put()
    world.clock.advance(us=KEPT_US - 3 * SECOND_US)
    assert expire_dead_jobs(world.queues.engine, None).acts == 0
    assert left(world, "q") == {*gone, young}
    world.clock.advance(us=2 * SECOND_US)
    assert expire_dead_jobs(world.queues.engine, None).acts == len(gone)
    assert left(world, "q") == {young}
    assert world.row(living).is_claimed() is False
    assert expire_dead_jobs(world.queues.engine, None).acts == 0
