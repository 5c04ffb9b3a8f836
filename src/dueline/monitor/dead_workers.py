"""Release what dead workers hold, before their leases expire.

A worker is dead if it is registered and has no heartbeat (rule M3): it missed three by the clock of
the store, or its process has certainly ended. That may be wrong: a worker that only stalled finds
the token changed, and its outcomes are refused, as after an expired lease.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import chain
from typing import Final

from dueline.coordination import worker_registry
from dueline.coordination.worker_registry import Registration, present
from dueline.core.clock import SECOND_US
from dueline.core.engine import Engine
from dueline.core.job import Job, is_away
from dueline.core.lane import Lane, bucket_of, limits_of
from dueline.core.limit_names import semaphore_of
from dueline.core.maintenance import StepResult
from dueline.core.process_identity import Whereabouts, own
from dueline.core.store import NO_VERSION, Commit, Delete, Group, Move, Store
from dueline.core.store_capabilities import PREFETCH_US_MAX
from dueline.core.wakeup import Wakeup, place_of
from dueline.jobs.claims import claims_in, lanes_with_claims
from dueline.limits import semaphore
from dueline.limits.semaphore import Permits, Semaphore

EVERY_US: Final = 2 * SECOND_US
_ROUNDS_MAX: Final = 5

HasEnded = Callable[[Registration], bool | None]


def has_ended_here(registration: Registration) -> bool | None:
    """Return whether the process of a worker has ended, as far as this process can see.

    Returns: False for this process; None where nothing is known for certain.
    """
    here = own()
    if here.space and Whereabouts(registration.space, registration.pid, registration.born) == here:
        return False
    return registration.has_ended(here) or None


def release_dead_worker(
    engine: Engine, after: str | None, *, has_ended: HasEnded = has_ended_here
) -> StepResult:
    """Release the claims and permits of the first dead worker past `after`, and unregister it.

    Workers of this process are skipped: if they missed heartbeats, the process stalled and
    continues now. Permits come last: a worker that is woken for the jobs then waits for the
    permits, and is woken again.
    """
    store = engine.store
    entries = [
        stored
        for stored in worker_registry.registrations(store)
        if after is None or stored.registration.worker > after
    ]
    others = [
        (registration, version, ended)
        for registration, version in entries
        if (ended := has_ended(registration)) is not False
    ]
    if not others:
        return StepResult()
    alive = {live.worker for live in present(store)}  # read later: the registered were in it
    for registration, version, ended in others:
        worker = registration.worker
        if worker in alive and not (ended and worker_registry.leave(engine.store, worker)):
            continue
        freed, semaphores = 0, set[str]()
        for lane in chain.from_iterable(
            lanes_with_claims(engine, queue) for queue in registration.queues
        ):
            freed += _release_claims(engine, worker, lane)
            semaphores.update(map(semaphore_of, limits_of(lane)))
        freed += release_permits(engine, worker, semaphores)
        worker_registry.unregister(store, worker, version=version)  # not if it is back
        return StepResult(freed, after=worker)
    return StepResult()


def _release_claims(engine: Engine, worker: str, lane: Lane) -> int:
    """Expire the claims that a worker holds in a lane; return how many."""
    freed = 0
    for claimed in claims_in(engine, lane):
        jobs = [job for job in claimed if job.worker == worker and not is_away(job)]
        freed += _expire_claims(engine, worker, jobs) if jobs else 0
    return freed


def _expire_claims(engine: Engine, worker: str, jobs: Sequence[Job]) -> int:
    """Expire claims now, with the rows that an expired lease would leave (rule M4)."""
    now_us = engine.time.earliest_us()
    moves = [_expired(engine, job, now_us) for job in jobs if not job.outcome]
    held = _apply(engine.store, worker, [Group((move,)) for move in moves])
    engine.wake(place_of(move) for move, sure in zip(moves, held, strict=True) if sure)
    return sum(held)


def _expired(engine: Engine, job: Job, now_us: int) -> Move:
    """Return the move of an expired claim; a job claimed ahead of its time is not due before it."""
    at_us = max(now_us, job.claimed_us + PREFETCH_US_MAX)
    bucket = bucket_of(at_us, engine.catalog.settings(job.lane.queue).width_us)
    return Move(job, at_us, engine.ids.token(), bucket, job.errors, job.crashes, job.alone,
                state=job.state, error=job.error)  # fmt: skip


def release_permits(engine: Engine, worker: str, semaphores: Collection[str]) -> int:
    """Release the permits of a dead worker for these semaphores, and for all that were set.

    Returns: how many limits had any.
    """
    known = semaphore.settings(engine.store)
    names = {*semaphores, *map(semaphore_of, known)}
    return sum(
        _release_permits(engine, worker, limit, known)
        for name in sorted(names)
        for limit, permits in semaphore.in_use(engine.store, name).items()
        if worker in permits.holders or worker in permits.waiting
    )


def _release_permits(
    engine: Engine, worker: str, limit: str, known: Mapping[str, Semaphore]
) -> bool:
    """Release the permits of one limit, and wake the workers that are next (rules M3, N3)."""
    for _ in range(_ROUNDS_MAX):
        permits, version = semaphore.read(engine.store, limit)
        now_us = engine.time.earliest_us()
        left = semaphore.without_worker(permits, worker, now_us)
        if left is None:
            return False
        if _write_permits(engine, worker, limit, left, version):
            capacity = semaphore.capacity_now(left, semaphore.setting_of(known, limit))
            free = capacity - left.in_use(now_us)
            workers = semaphore.next_in_turn(left, free, worker, now_us)
            engine.wakeups.wake(list(map(Wakeup, workers)))
            return True
    return False  # the worker is back, or the permits expire before this succeeds


def _write_permits(engine: Engine, worker: str, limit: str, left: Permits, version: bytes) -> bool:
    """Write the remaining permits if they are unchanged and the worker is not back."""
    change = semaphore.change_of(limit, left, expect=version, ids=engine.ids)
    return _apply(engine.store, worker, [Group(commits=(change,))])[0]


def _apply(store: Store, worker: str, groups: Sequence[Group]) -> Sequence[bool]:
    """Apply groups while a worker is absent; without transactions, that is read right before."""
    if store.transactional:
        is_absent = Commit(worker_registry.PARTITION, (Delete(worker, expect=NO_VERSION),))
        groups = [group._replace(commits=(is_absent, *group.commits)) for group in groups]
    elif any(presence.worker == worker for presence in present(store)):
        return [False] * len(groups)
    return store.together(groups)
