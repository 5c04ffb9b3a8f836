"""Permits that a worker takes for its claims, keeps while jobs need them, and releases."""

from pathlib import Path

import pytest

from dueline.core.clock import SECOND_US
from dueline.core.errors import StoreCorrupt
from dueline.core.store import Records
from dueline.limits import rate, semaphore
from dueline.limits.rate import Rate
from dueline.limits.semaphore import Permits
from tests.harness.permits import permits_of, take
from tests.harness.world import World, world_on

LEASE_US = 30 * SECOND_US


@pytest.fixture
def world() -> World:
    world = world_on("memory", Path())
    semaphore.define(world.store, "s", 5, ids=world.queues.engine.ids)
    return world


def version_of(world: World, name: str) -> bytes:
    """Return the version of a semaphore's permits: each write makes another one."""
    return semaphore.read(world.store, name)[1]


def test_permits_that_are_still_held_are_used_again_without_a_write(world: World) -> None:
    permits = permits_of(world)
    assert take(permits, "s", jobs=2) == 2
    version = version_of(world, "s")
    world.clock.advance(us=LEASE_US // 3)
    assert take(permits, "s", jobs=2) == 2  # none was used
    assert version_of(world, "s") == version
    world.clock.advance(us=1)
    assert take(permits, "s", jobs=2) == 2  # now they are extended too
    assert version_of(world, "s") != version


def test_a_worker_that_holds_no_permits_writes_nothing(world: World) -> None:
    permits = permits_of(world)
    assert take(permits, "s", jobs=2) == 2
    permits.settle(list)
    permits.settle(list)
    assert not permits._stored  # limits may be named after customers, of which there is no end
    version = version_of(world, "s")
    for _ in range(3):
        world.clock.advance(us=LEASE_US)
        permits.settle(list)
        assert permits.keep([]) == []
    assert version_of(world, "s") == version


def test_of_a_rate_that_another_worker_uses_meanwhile_only_the_rest_is_granted(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rule N5: it writes on the version that it read, and reads again."""
    for name, count in (("mail", 5), ("sms", 9)):
        rate.define(world.store, name, Rate(count, SECOND_US), ids=world.queues.engine.ids)
    write = rate.write

    def write_after_another(*args: object, **named: object) -> bool:
        patch.undo()
        assert take(permits_of(world, "w2"), "mail", jobs=3) == 3
        return write(*args, **named)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(rate, "write", write_after_another)
        assert take(permits_of(world), "mail", "sms", jobs=4) == 2


def test_whoever_has_one_limit_and_lacks_another_takes_none_and_waits_for_one(
    world: World,
) -> None:
    """Rules N2 and N3."""
    semaphore.define(world.store, "few", 1, ids=world.queues.engine.ids)
    other, permits = permits_of(world, "w2"), permits_of(world)
    assert take(other, "few") == 1
    assert take(other, "s") == 1
    assert take(permits, "few", "s") == 0
    waiting = {name: semaphore.read(world.store, name)[0].waiting for name in ("few", "s")}
    assert {name: set(workers) for name, workers in waiting.items()} == {"few": {"w1"}, "s": set()}
    permits.close()
    assert semaphore.read(world.store, "few")[0].waiting == {}


def test_a_dead_worker_is_removed_whether_it_holds_or_waits(world: World) -> None:
    """Rule M3."""
    world.hold("s", "holds")
    world.wait_for("s", "waits")
    permits, _ = semaphore.read(world.store, "s")
    for worker in ("holds", "waits"):
        left = semaphore.without_worker(permits, worker, world.now_us)
        assert left is not None
        assert worker not in {*left.holders, *left.waiting}
        assert {*left.holders, *left.waiting} == {"holds", "waits"} - {worker}
    assert semaphore.without_worker(permits, "other", world.now_us) is None


def test_a_wait_that_cannot_be_read_keeps_no_other_from_being_given_up(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    other, permits = permits_of(world, "w2"), permits_of(world)
    for name in ("damaged", "few"):
        assert take(other, name) == 1
        assert take(permits, name) == 0
    read = semaphore.read

    def read_others(records: Records, name: str) -> tuple[Permits, bytes]:
        if name == "damaged":
            raise StoreCorrupt("The record is damaged.")
        return read(records, name)

    with monkeypatch.context() as patch:
        patch.setattr(semaphore, "read", read_others)
        permits.close()
    assert semaphore.read(world.store, "few")[0].waiting == {}
    assert semaphore.read(world.store, "damaged")[0].waiting.keys() == {"w1"}  # it expires
