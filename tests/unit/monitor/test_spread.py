"""Shards that follow the load."""

import pytest

from dueline.coordination import notes
from dueline.monitor import shard_autoscaling as task
from dueline.monitor.shard_autoscaling import CALM_US, EVERY_US, autoscale_shards
from tests.harness.world import World


@pytest.fixture
def world(world: World, monkeypatch: pytest.MonkeyPatch) -> World:
    """Take the store for one that several machines share, whose lanes hold few jobs."""
    monkeypatch.setattr(type(world.store), "scope", "network", raising=False)
    monkeypatch.setattr(world.store, "scope", "network", raising=False)
    monkeypatch.setattr(task, "ROWS_MAX", 10)
    return world


def look(world: World, times: int = 1) -> int:
    """Do the task so often, a round apart, and write down what it says; answer the shards."""
    for _ in range(times):
        report = autoscale_shards(world.queues.engine, None)
        assert not report.puts or world.store.commit(notes.PARTITION, report.puts)
        world.clock.advance(us=EVERY_US)
    return world.queues.engine.catalog.settings("q").shards


def staff(world: World, workers: int) -> None:
    """Let so many workers live, and serve the queue."""
    for number in range(workers):
        world.live(f"w{number}", queues=("q",))


def test_there_are_as_many_shards_as_workers(world: World) -> None:
    # H7
    world.queues.engine.catalog.configure("q", shards_range=(2, 64))
    assert look(world) == 2
    staff(world, 9)
    assert look(world) == 9
    assert world.queues.engine.catalog.settings("q").shards_read == 9


def test_there_are_never_more_than_is_allowed(world: World) -> None:
    world.queues.engine.catalog.configure("q", shards_range=(2, 4))
    staff(world, 9)
    assert look(world, 3) == 4


def test_a_number_that_somebody_has_set_stays(world: World) -> None:
    world.queues.engine.catalog.configure("q", shards=2)
    staff(world, 9)
    assert look(world, 3) == 2
    assert not autoscale_shards(world.queues.engine, None).puts


def test_full_lanes_ask_for_twice_as_many(world: World) -> None:
    world.queues.engine.catalog.configure("q", shards_range=(1, 64))
    for _ in range(task.ROWS_MAX):
        world.put()
    assert look(world) == 2
    assert look(world, 5) == 2, "what lies in the lanes of before says nothing of the new ones"
    for _ in range(3 * task.ROWS_MAX):
        world.put()
    assert look(world) == 4


def test_lanes_that_are_half_full_ask_for_no_other_number(world: World) -> None:
    world.queues.engine.catalog.configure("q", shards_range=(1, 64))
    for _ in range(task.ROWS_MAX - 1):
        world.put()
    assert look(world, 2 * CALM_US // EVERY_US) == 1


def test_an_hour_after_the_load_fell_there_are_as_many_as_that_hour_asked_for(
    world: World,
) -> None:
    world.queues.engine.catalog.configure("q", shards_range=(1, 64))
    staff(world, 9)
    assert look(world) == 9
    calm = CALM_US // EVERY_US
    for number in range(9):
        world.leave(f"w{number}")
    staff(world, 3)
    assert look(world) == 9
    world.clock.advance(us=CALM_US // 2)  # nobody beats any more
    assert look(world, calm // 2 - 2) == 9
    assert look(world, 3) == 3
    assert look(world, calm // 2) == 3
    assert look(world, calm) == 1
    assert world.queues.engine.catalog.settings("q").shards_read == 9


def test_a_little_less_load_changes_nothing(world: World) -> None:
    world.queues.engine.catalog.configure("q", shards_range=(1, 64))
    staff(world, 9)
    look(world)
    for _ in range(3 * CALM_US // EVERY_US):
        staff(world, 5)
        assert look(world) == 9


def test_a_number_that_is_set_meanwhile_is_not_overwritten(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.queues.engine.catalog.configure("q", shards_range=(1, 64))
    staff(world, 9)
    asked = task._asked_by_jobs

    def meanwhile(*given: object) -> int:
        world.queues.engine.catalog.configure("q", shards=3, shards_range=())
        return asked(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(task, "_asked_by_jobs", meanwhile)
    assert look(world) == 3


def test_where_one_shard_is_as_fast_as_many_nothing_is_done(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(world.store, "scope", "machine", raising=False)
    monkeypatch.setattr(type(world.store), "scope", "machine", raising=False)
    world.queues.engine.catalog.configure("q", shards_range=(1, 64))
    staff(world, 9)
    assert look(world, 2) == 1
