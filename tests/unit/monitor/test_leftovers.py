"""Shards that no new jobs come to."""

from collections.abc import Callable

import pytest

from dueline.core.clock import DAY_US
from dueline.core.job import Job
from dueline.core.queue_settings import QueueSettings
from dueline.jobs.queue import Queues
from dueline.monitor.empty_queues import WAIT_US, remove_empty_queues
from dueline.monitor.lane_sweep import sweep_lanes
from dueline.monitor.retention import expire_history
from dueline.stores.memory.store import MemoryStore
from tests.harness.clocks import HandClock
from tests.harness.empty_queues import (
    CALL,
    HISTORY_US,
    STAGES,
    Put,
    against_monitor,
    hurried_against_monitor,
    rounds,
)
from tests.harness.queues import queues_on
from tests.harness.world import World

SHARDS = 2
"""Of which the last is left over."""


def job_in_last_shard(clock: HandClock) -> Job:
    """Make a job as a producer does who knows of all shards."""
    settings = QueueSettings(shards=SHARDS, shards_read=SHARDS)
    queues = queues_on(MemoryStore(clock), clock, settings)
    while (job := queues.enqueue(CALL)[0]).lane.shard < SHARDS - 1:
        pass
    return job


def narrow(queues: Queues) -> None:
    """Leave the last shard over."""
    queues.engine.catalog.configure("q", shards=SHARDS)
    queues.engine.catalog.configure("q", shards=SHARDS - 1)


def a_shard(monitor: Queues, clock: HandClock) -> Put:
    """Leave a shard over; a job comes to it by one who knew all shards."""
    job = job_in_last_shard(clock)
    narrow(monitor)
    return lambda producer: producer.enqueue_again([job])


def producer_against_monitor() -> int:
    """Let a job be put while the monitor lets its shard go."""
    return against_monitor(a_shard)


def hurried_producer_against_monitor() -> int:
    """Let a job be put late while the monitor lets its shard go."""
    return hurried_against_monitor(a_shard)


def shards_read(world: World) -> int:
    """Tell how many shards workers read."""
    return world.queues.engine.catalog.settings("q").shards_read


def test_shards_that_are_left_over_go_once_they_are_empty_whoever_serves_the_queue(
    world: World,
) -> None:
    # H7
    narrow(world.queues)
    job_id = world.put()
    for read in (2, 2, 1):
        world.clock.advance(us=WAIT_US + 1)
        world.live(queues=("q",))
        assert remove_empty_queues(world.queues.engine, None).acts == 1
        assert shards_read(world) == read
    assert remove_empty_queues(world.queues.engine, None).acts == 0
    assert world.queues.find(job_id).status == "ready"


@pytest.mark.parametrize("is_dead", [False, True])
def test_they_stay_as_long_as_a_job_is_there(world: World, is_dead: bool) -> None:  # noqa: FBT001
    narrow(world.queues)
    world.queues.engine.catalog.configure("q", history="off")
    job = job_in_last_shard(world.clock)
    world.queues.enqueue_again([job])
    if is_dead:
        world.die(job.id)
        for _ in range(4):
            world.clock.advance(us=2 * DAY_US)
            sweep_lanes(world.queues.engine, None)
        assert not [*world.queues.engine.lanes_of("q")]
    assert rounds(world) == [0, 0, 0]
    assert shards_read(world) == SHARDS


def test_they_stay_as_long_as_their_history_is_kept(world: World) -> None:
    narrow(world.queues)
    job = job_in_last_shard(world.clock)
    world.queues.enqueue_again([job])
    world.die(job.id)
    world.queues.retry(job.id)
    world.queues.cancel(job.id)
    for _ in range(4):
        world.clock.advance(us=2 * DAY_US)
        sweep_lanes(world.queues.engine, None)
    assert rounds(world) == [0, 0, 0]
    world.clock.advance(us=HISTORY_US)
    expire_history(world.queues.engine, None)
    assert rounds(world) == [1, 1, 1]
    assert shards_read(world) == SHARDS - 1


@pytest.mark.parametrize("stages", [0, 1, 2, 3])
def test_a_job_that_comes_to_one_keeps_it(world: World, stages: int) -> None:
    narrow(world.queues)
    rounds(world, stages)
    world.other().enqueue_again([job_in_last_shard(world.clock)])
    assert rounds(world, 5) == [0] * 5
    assert world.queues.engine.catalog.entry("q").leaving_us is None  # type: ignore[union-attr]
    assert shards_read(world) == SHARDS


@pytest.mark.parametrize("stages", [1, 2])
def test_jobs_that_come_to_others_do_not(world: World, stages: int) -> None:
    narrow(world.queues)
    rounds(world, stages)
    producer = world.other()
    for _ in range(3):
        producer.enqueue(CALL)
        world.clock.advance(60)
    assert rounds(world, STAGES - stages) == [1] * (STAGES - stages)
    assert shards_read(world) == SHARDS - 1


def test_a_larger_number_that_is_set_meanwhile_holds(world: World) -> None:
    narrow(world.queues)
    rounds(world, 2)
    world.other().engine.catalog.configure("q", shards=SHARDS)
    assert rounds(world, 3) == [0, 0, 0]
    assert shards_read(world) == SHARDS


def test_a_queue_whose_shards_went_may_vanish(world: World) -> None:
    # C16
    narrow(world.queues)
    assert rounds(world, 2 * STAGES) == [1] * 2 * STAGES
    assert world.queues.engine.catalog.names() == []


# --- a producer and the monitor, in every order of their steps --------------------------------


@pytest.mark.long
@pytest.mark.parametrize("race", [producer_against_monitor, hurried_producer_against_monitor])
def test_no_job_is_in_a_shard_that_is_not_read(race: Callable[[], int]) -> None:
    # H7
    assert race() > 20
