"""Forgetting dead jobs that lie longer than their queue keeps them."""

import pytest

from dueline.core.clock import DAY_US, SECOND_US
from dueline.core.errors import BadInput
from dueline.core.job import JobId
from dueline.monitor import retention as task
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


def test_the_dead_go_when_they_are_older_than_they_are_kept_and_no_others(world: World) -> None:
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


def test_the_dead_stay_for_ever_where_nothing_else_is_said(world: World) -> None:
    job_id = dead(world)
    world.clock.advance(us=3000 * DAY_US)
    assert expire_dead_jobs(world.queues.engine, None).acts == 0
    assert left(world, "q") == {job_id}


def test_one_that_is_retried_is_no_longer_dead(world: World) -> None:
    job_id = dead(world)
    world.queues.engine.catalog.configure("q", dead_us=KEPT_US)
    world.clock.advance(us=KEPT_US + SECOND_US)
    world.queues.retry(job_id)
    assert expire_dead_jobs(world.queues.engine, None).acts == 0
    assert world.row(job_id).lane.queue == "q"


def test_a_step_forgets_some_and_the_next_goes_on_there(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task, "JOBS_A_STEP", 3)
    for queue in ("q1", "q2", "q3"):
        for _ in range(4):
            dead(world, queue)
        world.queues.engine.catalog.configure(queue, dead_us=KEPT_US)
    world.clock.advance(us=KEPT_US + SECOND_US)
    reports = [expire_dead_jobs(world.queues.engine, None)]
    while reports[-1].after is not None:
        reports.append(expire_dead_jobs(world.queues.engine, reports[-1].after))
    assert [report.acts for report in reports] == [3, 3, 3, 3, 0]
    assert left(world, "q1", "q2", "q3") == set()


def test_a_time_that_cannot_be_is_refused(world: World) -> None:
    world.put()
    with pytest.raises(BadInput, match="dead_keep"):
        world.queues.engine.catalog.configure("q", dead_us=-1)
