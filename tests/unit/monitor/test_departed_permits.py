"""Giving back the permits of the dead (F3)."""

from collections.abc import Callable, Sequence

import pytest

from dueline.core.store import Record
from dueline.core.wakeup import Wakeup
from dueline.limits import semaphore
from dueline.limits.permits import HeldPermits
from dueline.limits.semaphore import HANDOVER_US, PermitRequest, spare
from dueline.worker.heartbeat import Load, PresenceReporter
from tests.harness.dead_workers import LONG_US, SHORT_S, beat, free_all
from tests.harness.world import World

LONG_S = LONG_US // 1_000_000


def holders(world: World, limit: str) -> dict[str, int]:
    """Tell who holds how many permits."""
    permits, _ = semaphore.read(world.store, limit)
    return {worker: hold.count for worker, hold in permits.holders.items()}


def once_read(world: World, then: Callable[[], object]) -> None:
    """Do something once, right after the record of a limit is read on its own."""
    read, is_done = world.store.read, False

    def read_and(partition: str, *, after: str | None, limit: int) -> Sequence[Record]:
        nonlocal is_done
        found = read(partition, after=after, limit=limit)
        if partition.startswith("permits/") and limit == 1 and not is_done:
            is_done = True
            then()
        return found

    world.store.read = read_and  # type: ignore[method-assign]


def test_permits_of_a_dead_worker_are_free_long_before_they_expire(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    # F1, rule M3
    semaphore.define(world.store, "warehouse", 3, ids=world.queues.engine.ids)
    semaphore.define(world.store, "host", 1, ids=world.queues.engine.ids)
    beat(world)
    world.hold("warehouse", "w1", 2, lasts_s=LONG_S)
    world.hold("warehouse", "w2", 1, lasts_s=LONG_S)
    world.hold("host:a", "w1", 1, lasts_s=LONG_S)
    world.hold("host:b", "w2", 1, lasts_s=LONG_S)
    world.clock.advance(SHORT_S)
    world.wait_for("warehouse", "w3", 2, queue="other")
    woken: list[Wakeup] = []
    monkeypatch.setattr(world.queues.engine.wakeups, "wake", woken.extend)
    assert free_all(world) == 2
    assert [one.channel for one in woken] == ["w3"]
    assert holders(world, "warehouse") == {"w2": 1}
    assert holders(world, "host:a") == {}
    assert holders(world, "host:b") == {"w2": 1}
    permits, _ = semaphore.read(world.store, "warehouse")
    late, first = (PermitRequest(2, 0, world.now_us + number, "q") for number in (1, 0))
    assert spare(permits, 3, "w4", late, world.now_us) == 0  # kept for the one that waits
    assert spare(permits, 3, "w3", first, world.now_us) == 2
    assert spare(permits, 3, "w4", late, world.now_us + HANDOVER_US) == 2


def test_whom_a_dead_worker_keeps_waiting_need_not_let_it_go_first(world: World) -> None:
    semaphore.define(world.store, "warehouse", 1, ids=world.queues.engine.ids)
    beat(world)
    world.hold("warehouse", "w2", lasts_s=LONG_S)
    world.wait_for("warehouse", "w1")
    assert free_all(world, "w1") == 1
    permits, _ = semaphore.read(world.store, "warehouse")
    assert (dict(permits.waiting), holders(world, "warehouse")) == ({}, {"w2": 1})


def test_permits_of_a_semaphore_that_nobody_has_set_are_found_by_jobs(world: World) -> None:
    world.put(limits=["host:a", "host:b"])
    beat(world)
    world.hold("host:b", "w1", lasts_s=LONG_S)
    assert free_all(world, "w1") == 1
    assert holders(world, "host:b") == {}


def test_no_permits_are_touched_of_a_worker_that_beats_or_was_never_on_the_roster(
    world: World,
) -> None:
    semaphore.define(world.store, "warehouse", 3, ids=world.queues.engine.ids)
    beat(world)
    beat(world, "w2")
    world.hold("warehouse", "w1", lasts_s=LONG_S)
    world.hold("warehouse", "by hand", lasts_s=LONG_S)
    world.clock.advance(SHORT_S - 1)
    assert free_all(world, "w2", "by hand") == 0
    assert holders(world, "warehouse") == {"w1": 1, "by hand": 1}


def test_a_worker_that_comes_back_meanwhile_keeps_its_permits(world: World) -> None:
    """It beats again after it was found to be silent, before the write."""
    # rule M3
    semaphore.define(world.store, "warehouse", 3, ids=world.queues.engine.ids)
    reporter = PresenceReporter(world.queues.engine, "w1", serving=("q",))
    reporter.report(Load(slots=4, held=0))
    world.hold("warehouse", "w1", lasts_s=LONG_S)
    world.clock.advance(SHORT_S)
    once_read(world, lambda: reporter.report(Load(slots=4, held=1)))
    assert free_all(world) == 0
    assert holders(world, "warehouse") == {"w1": 1}


def test_what_another_changes_meanwhile_stays_changed(world: World) -> None:
    semaphore.define(world.store, "warehouse", 3, ids=world.queues.engine.ids)
    beat(world)
    for worker in ("w1", "w3"):
        world.hold("warehouse", worker, lasts_s=LONG_S)
    once_read(world, lambda: world.hold("warehouse", "w2", lasts_s=LONG_S))
    assert free_all(world, "w1") == 1
    assert holders(world, "warehouse") == {"w2": 1, "w3": 1}


def test_a_paused_worker_takes_the_remaining_permits_and_loses_other_jobs(
    world: World,
) -> None:
    # rule P2
    world.queues.engine.catalog.configure("q", lease_us=LONG_US)
    semaphore.define(world.store, "warehouse", 2, ids=world.queues.engine.ids)
    ids = [world.put(limits=["warehouse"]) for _ in range(2)]
    beat(world, queues=("q", "other"))
    mine = HeldPermits(world.queues.engine, "w1")
    mine.begin(list, 4)
    assert mine.take(["warehouse"], 2, priority=0, queue="q", lease_us=LONG_US).jobs == 2
    jobs = [world.claim(job_id) for job_id in ids]
    world.clock.advance(SHORT_S)
    free_all(world)
    world.hold("warehouse", "w2", lasts_s=LONG_S)
    assert mine.keep(jobs) == jobs[1:]
    assert holders(world, "warehouse") == {"w1": 1, "w2": 1}
