"""Give back the permits of the dead, sooner than they lapse."""

from collections.abc import Collection, Mapping
from typing import Final

from dueline.coordination import worker_registry
from dueline.core.engine import Engine
from dueline.core.limit_names import semaphore_of
from dueline.core.store import NO_VERSION, Commit, Delete, Group
from dueline.limits import semaphore
from dueline.limits.semaphore import CAPACITY_DEFAULT, Permits

_ROUNDS_MAX: Final = 5


def give_back(engine: Engine, worker: str, semaphores: Collection[str]) -> int:
    """Give back what a dead worker has of these semaphores, and of all that were set.

    Returns: of how many limits.
    """
    capacities = semaphore.capacities(engine.store)
    names = {*semaphores, *capacities}
    return sum(
        _give_back(engine, worker, limit, capacities)
        for name in sorted(names)
        for limit, permits in semaphore.in_use(engine.store, name).items()
        if worker in permits.holders or worker in permits.waiting
    )


def _give_back(engine: Engine, worker: str, limit: str, capacities: Mapping[str, int]) -> bool:
    """Give back what a worker has of a limit, and wake who comes next (rules M3, N3)."""
    for _ in range(_ROUNDS_MAX):
        permits, version = semaphore.read(engine.store, limit)
        now_us = engine.time.earliest_us()
        left = semaphore.departed(permits, worker, now_us)
        if left is None:
            return False
        if _is_written(engine, worker, limit, left, version):
            capacity = capacities.get(semaphore_of(limit), CAPACITY_DEFAULT)
            free = capacity - left.in_use(now_us)
            engine.waker.wake(semaphore.next_in_turn(left, free, worker, now_us))
            return True
    return False  # it is back, or so many change this that it lapses before


def _is_written(engine: Engine, worker: str, limit: str, left: Permits, version: bytes) -> bool:
    """Write what is left, unless somebody else has changed it, or the worker is back.

    As with its jobs: that it is absent is a condition of the write where there are transactions,
    else it is looked at right before.
    """
    store = engine.store
    change = semaphore.change_of(limit, left, expect=version, ids=engine.ids)
    if store.transactional:
        is_absent = Commit(worker_registry.PARTITION, (Delete(worker, expect=NO_VERSION),))
        return store.together([Group(commits=(is_absent, change))])[0]
    if any(one.worker == worker for one in worker_registry.present(store)):
        return False
    return store.commit(change.partition, change.writes)
