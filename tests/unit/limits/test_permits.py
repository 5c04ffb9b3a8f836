"""Permits that a worker takes for its claims, keeps while jobs need them, and releases."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from dueline.core.clock import SECOND_US
from dueline.core.errors import StoreCorrupt
from dueline.core.store import Records
from dueline.limits import rate, semaphore
from dueline.limits.definitions import DEFINITIONS_AGE_US
from dueline.limits.permits import SLOTS
from dueline.limits.rate import Rate
from dueline.limits.rate_meters import RateMeters
from dueline.limits.semaphore import Permits, Semaphore
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


@pytest.mark.parametrize("longest", ["first", "last"])
def test_permits_last_as_long_as_the_longest_lease_of_their_jobs(
    world: World, longest: str
) -> None:
    """Rule N4: else another worker takes them while a job of the longest still runs."""
    leases_us = {"first": LEASE_US, "last": LEASE_US, longest: 3 * LEASE_US}
    for queue, lease_us in leases_us.items():
        world.queues.engine.catalog.configure(queue, lease_us=lease_us)
    jobs = [world.row(world.put(queue=queue, limits=["s"])) for queue in leases_us]
    permits = permits_of(world)
    assert take(permits, "s", jobs=2) == 2
    assert permits.keep(jobs) == []
    ends_us = world.now_us + 3 * LEASE_US
    assert semaphore.read(world.store, "s")[0].holders["w1"].until_us == ends_us
    assert permits.ends_us(jobs) == dict.fromkeys([job.claim() for job in jobs], ends_us)


def test_claims_last_no_longer_than_the_first_of_their_permits_that_ends(world: World) -> None:
    """Rule N4."""
    semaphore.define(world.store, "t", 5, ids=world.queues.engine.ids)
    permits = permits_of(world)
    assert take(permits, "t", jobs=2) == 2
    ends_us = {"t": world.now_us + LEASE_US}
    world.clock.advance(1)
    assert take(permits, "s", jobs=2) == 2
    ends_us["s"] = world.now_us + LEASE_US
    limits = [["s"], ["t"], ["s", "t"], ["t", "s"], ["free"]]
    jobs = [world.row(world.put(limits=names)) for names in limits]
    expected = [min((ends_us[name] for name in names if name in ends_us), default=0)
                for names in limits]  # fmt: skip
    found = permits.ends_us(jobs)
    assert [found.get(job.claim(), 0) for job in jobs] == expected


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


def test_a_wait_that_only_the_worker_itself_causes_is_not_remembered(world: World) -> None:
    permits = permits_of(world)
    for number in range(3):
        name = f"s:{number}"
        assert take(permits, name, jobs=5) == 5
        permits._used.update({name: 5})
        granted = permits.take([name], 1, priority=0, queue="q", lease_us=LEASE_US)
        assert granted.jobs == 0
    assert permits._waiting == {}  # limits may be named after customers
    assert semaphore.read(world.store, "s:0")[0].waiting == {}


def test_waits_keep_their_turn_up_to_a_number_of_kinds(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dueline.limits.permits._WAITS_MAX", 2)
    permits, began_us = permits_of(world), world.now_us
    for second in range(1, 4):
        since = {name: permits._since(((name,), 0), world.now_us) for name in "ab"}
        assert since == {"a": began_us, "b": began_us}
        world.clock.advance(1)
        assert second * SECOND_US < semaphore.WAIT_US
    for name in "cd":
        permits._since(((name,), 0), world.now_us)
    assert permits._since((("a",), 0), world.now_us) == world.now_us


def test_slots_are_left_while_fewer_jobs_with_limits_are_held(world: World) -> None:
    permits, job = permits_of(world), world.row(world.put(limits=["s"]))
    assert take(permits, "s") == 1
    assert [SLOTS in permits.begin(lambda: [job], most) for most in (0, 1, 2)] == [
        False, False, True,
    ]  # fmt: skip


def test_definitions_are_read_again_once_they_are_old(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, reads = semaphore.settings, list[int]()

    def count(records: Records) -> Mapping[str, Semaphore]:
        reads.append(world.now_us)
        return read(records)

    monkeypatch.setattr(semaphore, "settings", count)
    permits, began_us = permits_of(world), world.now_us
    for pause_us in (0, DEFINITIONS_AGE_US, 1, 1):
        world.clock.advance(us=pause_us)
        assert take(permits, "s") == 1
    assert [us - began_us for us in reads] == [0, DEFINITIONS_AGE_US + 1]


def test_a_place_is_given_up_where_another_limit_is_lacking_by_now(world: World) -> None:
    """Rule N2: else permits would be reserved for a worker that cannot use them."""
    others = {name: permits_of(world, f"holds {name}") for name in ("few", "one")}
    permits = permits_of(world)
    for name, other in others.items():
        assert take(other, name) == 1
    assert take(permits, "few", "one") == 0
    assert semaphore.read(world.store, "one")[0].waiting.keys() == {"w1"}
    others["one"].settle(list)
    assert take(permits, "few", "one") == 0
    assert semaphore.read(world.store, "one")[0].waiting == {}
    assert semaphore.read(world.store, "few")[0].waiting.keys() == {"w1"}
    assert permits._waiting.keys() == {"few"}


def test_a_rate_of_which_nothing_is_left_is_not_written(world: World) -> None:
    one = Rate(2, SECOND_US)
    meters = RateMeters(world.queues.engine)
    assert meters.take("mail", one, meters.read("mail", one), 2)[0] == 2
    reading = meters.read("mail", one)
    assert meters.take("mail", one, reading, 1) == (0, reading.next_us)
    assert meters.read("mail", one).version == reading.version


def test_permits_that_a_claim_did_not_need_are_for_its_next_lanes(world: World) -> None:
    permits = permits_of(world)
    assert take(permits, "s", jobs=5) == 5
    for count in (5, 2):
        permits.unused(["s"], count)
        granted = permits.take(["s"], 9, priority=0, queue="q", lease_us=LEASE_US)
        assert granted.jobs == count
