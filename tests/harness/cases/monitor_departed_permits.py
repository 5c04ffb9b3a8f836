"""Giving back the permits of the dead."""

from collections.abc import Callable, Sequence

from dueline.core.store import Record
from dueline.limits import semaphore
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


def a_worker_that_comes_back_meanwhile_keeps_its_permits(world: World) -> None:
    """It beats again after it was found to be silent, before the write."""
    # M3
    semaphore.define(world.store, "warehouse", 3, ids=world.queues.engine.ids)
    reporter = PresenceReporter(world.queues.engine, "w1", serving=("q",), tasks=())
    reporter.report(Load(slots=4, held=0))
    world.hold("warehouse", "w1", lasts_s=LONG_S)
    world.clock.advance(SHORT_S)
    once_read(world, lambda: reporter.report(Load(slots=4, held=1)))
    assert free_all(world) == 0
    assert holders(world, "warehouse") == {"w1": 1}


def what_another_changes_meanwhile_stays_changed(world: World) -> None:
    semaphore.define(world.store, "warehouse", 3, ids=world.queues.engine.ids)
    beat(world)
    for worker in ("w1", "w3"):
        world.hold("warehouse", worker, lasts_s=LONG_S)
    once_read(world, lambda: world.hold("warehouse", "w2", lasts_s=LONG_S))
    assert free_all(world, "w1") == 1
    assert holders(world, "warehouse") == {"w2": 1, "w3": 1}
