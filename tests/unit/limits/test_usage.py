"""What is reported of limits: whether they are full, and which lanes wait for them."""

from pathlib import Path

import pytest

from dueline.core.clock import SECOND_US
from dueline.core.lane import Lane
from dueline.limits import rate, semaphore
from dueline.limits.rate import Rate
from dueline.limits.semaphore import Semaphore
from dueline.limits.suspension import suspend
from dueline.limits.usage import BusyLimits, look, rate_usages_of, semaphores, usage_of, usages_of
from tests.harness.permits import permits_of, take
from tests.harness.world import World, world_on


@pytest.fixture
def world() -> World:
    return world_on("memory", Path())


def lane_of(world: World, *limits: str) -> Lane:
    """Return the lane of a job with limits."""
    return world.row(world.put(limits=limits)).lane


def define(world: World, name: str, capacity: int) -> None:
    semaphore.define(world.store, name, capacity, ids=world.queues.engine.ids)


def test_a_semaphore_is_full_when_all_its_permits_are_held(world: World) -> None:
    engine = world.queues.engine
    define(world, "s", 2)
    for count, is_full in ((0, False), (1, False), (2, True)):
        if count:
            world.hold("s", f"w{count}")
        usage = usage_of(engine, "s")
        assert (usage.held, usage.capacity, usage.is_full) == (count, 2, is_full)
        assert BusyLimits(engine).has(lane_of(world, "s")) is is_full
    world.clock.advance(30)  # their leases end now
    assert usage_of(engine, "s").held == 0
    assert usages_of(engine, "s") == []


def test_holds_and_waits_are_reported_until_they_expire(world: World) -> None:
    engine, wait_s = world.queues.engine, semaphore.WAIT_US // SECOND_US
    world.hold("s", "longer", lasts_s=2 * wait_s)  # the record lasts as long
    world.hold("s", "holds", lasts_s=wait_s)
    world.wait_for("s", "waits")
    suspend(engine, ["s"], world.now_us + semaphore.WAIT_US)
    world.clock.advance(us=semaphore.WAIT_US - 1)
    usage = usage_of(engine, "s")
    assert {*usage.holders, *usage.waiting} == {"longer", "holds", "waits"}
    assert usage.closed_us == world.now_us + 1
    world.clock.advance(us=1)
    usage = usage_of(engine, "s")
    assert {*usage.holders, *usage.waiting} == {"longer"}
    assert usage.closed_us == 0


def test_a_semaphore_that_was_never_set_allows_one(world: World) -> None:
    engine = world.queues.engine
    define(world, "set", 1)
    assert [usage_of(engine, name).is_set for name in ("set", "named")] == [True, False]
    assert usage_of(engine, "named").capacity == 1
    lane_of(world, "named")
    assert semaphores(engine) == {"named": None, "set": Semaphore(1)}


def test_a_lane_waits_where_others_wait_or_nothing_is_allowed(world: World) -> None:
    engine = world.queues.engine
    define(world, "s", 2)
    define(world, "none", 0)
    world.wait_for("s", "w1")
    assert [usage.is_busy for usage in usages_of(engine, "s")] == [True]
    assert not usage_of(engine, "s").is_full
    busy = BusyLimits(engine)
    assert busy.has(lane_of(world, "s"))
    assert busy.has(lane_of(world, "none"))
    assert busy.has(lane_of(world, "none:key"))
    assert busy.has(lane_of(world, "free", "none"))
    assert not busy.has(lane_of(world, "free"))
    assert not busy.has(lane_of(world, "s:key"))
    assert not busy.has(lane_of(world))


def test_a_suspended_semaphore_is_full_until_it_opens(world: World) -> None:
    engine = world.queues.engine
    suspend(engine, ["s"], world.now_us + SECOND_US)
    assert usage_of(engine, "s").is_full
    assert usage_of(engine, "s").closed_us == world.now_us + SECOND_US
    assert len(usages_of(engine, "s")) == 1
    world.clock.advance(1)
    assert not usage_of(engine, "s").is_full
    assert usage_of(engine, "s").closed_us == 0


def test_a_rate_is_busy_until_a_job_may_start(world: World) -> None:
    engine, mail = world.queues.engine, Rate(2, SECOND_US)
    rate.define(world.store, "mail", mail, ids=engine.ids)
    lane = lane_of(world, "mail")
    assert not BusyLimits(engine).has(lane)
    assert look(engine, ["mail", "s"])[0] == []
    assert take(permits_of(world), "mail", jobs=2) == 2
    (usage,) = rate_usages_of(engine, "mail", mail, most=9)
    assert (usage.left, usage.closed_us) == (0, 0)
    assert BusyLimits(engine).has(lane)
    (exhausted,), uses = look(engine, ["mail", "s"])
    assert (exhausted.name, exhausted.rate, exhausted.next_us) == ("mail", mail, usage.next_us)
    assert [use.name for use in uses] == ["s"]
    world.clock.advance(us=usage.next_us - world.now_us)
    assert not BusyLimits(engine).has(lane)
    suspend(engine, ["mail"], world.now_us + SECOND_US)
    assert rate_usages_of(engine, "mail", mail, most=9)[0].closed_us == world.now_us + SECOND_US
    assert rate_usages_of(engine, "mail", mail, most=0) == []
    assert BusyLimits(engine).has(lane)
    assert "mail" not in semaphores(engine)
