"""Retiring lanes that nobody looks at."""

from dueline.core.clock import DAY_US
from dueline.core.store import Drop
from dueline.monitor.lane_sweep import QUEUES_A_STEP, sweep_lanes
from tests.harness.world import World


def listed(world: World, queue: str) -> int:
    """Count a queue's pointers."""
    page = world.store.lanes(queue, 0, until_bucket=2**40, after=None, limit=100)
    return len(page.pointers)


def test_a_lane_that_is_past_and_empty_is_retired_though_no_worker_serves_it(world: World) -> None:
    job = world.claim(world.put())
    assert world.store.settle([Drop(job)]) == [True]
    assert listed(world, "q") == 1
    for _ in range(3):
        world.clock.advance(us=2 * DAY_US)
        assert sweep_lanes(world.queues.engine, None).acts == 1 or listed(world, "q") == 0
    assert listed(world, "q") == 0
    assert sweep_lanes(world.queues.engine, None).acts == 0


def test_the_lanes_of_dead_jobs_are_retired_too_and_only_when_they_are_empty(world: World) -> None:
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


def test_a_step_looks_at_some_queues_and_the_next_goes_on_there(world: World) -> None:
    names = [f"q{number:03}" for number in range(QUEUES_A_STEP + 3)]
    for name in names:
        world.queues.engine.catalog.settings(name)
    report = sweep_lanes(world.queues.engine, None)
    assert report.after == names[QUEUES_A_STEP - 1]
    assert sweep_lanes(world.queues.engine, report.after).after is None
