"""Free what the dead hold, sooner than their leases.

Dead is who is on the roster and not in the registry (rule M3): three beats were missed, by the
store's clock, or its process has ended for certain. That may be wrong: whoever only stood still
finds the token changed, and its verdicts refused, as after a lease. Its permits go the same way.
"""

from collections.abc import Callable, Sequence
from itertools import chain

from dueline.coordination import worker_registry, worker_roster
from dueline.coordination.worker_registry import Presence, present
from dueline.coordination.worker_roster import Member
from dueline.core.chore import Report
from dueline.core.clock import SECOND_US
from dueline.core.engine import Engine
from dueline.core.job import Job
from dueline.core.lane import Lane, bucket_of, limits_of
from dueline.core.limit_names import semaphore_of
from dueline.core.process_identity import Whereabouts, is_gone, own
from dueline.core.store import NO_VERSION, Commit, Delete, Group, Move
from dueline.core.store_capabilities import AHEAD_US
from dueline.core.wakeup import place_of
from dueline.jobs.claims import claims_in, lanes_with_claims
from dueline.monitor import dead_permits

EVERY_US = 2 * SECOND_US

HasEnded = Callable[[Member], bool | None]


def has_ended_here(member: Member) -> bool | None:
    """Tell whether a worker's process has ended, as far as can be seen from this one.

    Returns: False of this process, which goes on; None where nothing is known for certain.
    """
    there, here = Whereabouts(member.space, member.pid, member.born), own()
    if there == here and here.space:
        return False
    return is_gone(there, here) or None


def free(engine: Engine, after: str | None, *, has_ended: HasEnded = has_ended_here) -> Report:
    """Free what one dead worker holds, the first behind `after`, and strike it off the roster.

    Those of this process are let be: if they are silent, it stood still, and goes on now.

    Its permits come last: who is woken for its jobs then waits for them, and is woken again.
    """
    store = engine.store
    entries = [
        one for one in worker_roster.members(store) if after is None or one.member.worker > after
    ]
    alive = {one.worker: one for one in present(store)}  # read later: who is enrolled was there
    for member, version in entries:
        said, ended = alive.get(member.worker), has_ended(member)
        if ended is False:
            continue
        if said is not None and not (ended and _sign_off(engine, said)):
            continue
        freed, semaphores = 0, set[str]()
        for lane in chain.from_iterable(
            lanes_with_claims(engine, queue) for queue in member.queues
        ):
            freed += _free(engine, member.worker, lane)
            semaphores.update(map(semaphore_of, limits_of(lane)))
        freed += dead_permits.give_back(engine, member.worker, semaphores)
        worker_roster.strike(store, member.worker, version=version)  # not if it has come back
        return Report(freed, after=member.worker)
    return Report()


def _sign_off(engine: Engine, said: Presence) -> bool:
    """Take one whose process has ended out of the registry."""
    return engine.store.commit(worker_registry.PARTITION, (Delete(said.worker),))


def _free(engine: Engine, worker: str, lane: Lane) -> int:
    """Free what a worker holds in a lane; answer how many jobs."""
    freed = 0
    for claimed in claims_in(engine, lane):
        jobs = [job for job in claimed if job.worker == worker]
        freed += _let_lapse(engine, worker, jobs) if jobs else 0
    return freed


def _let_lapse(engine: Engine, worker: str, jobs: Sequence[Job]) -> int:
    """Let claims lapse now: the rows say what they would say then (rule M4).

    Not where the worker is back: as one with the verdict where there are transactions, else
    looked at right before it.
    """
    moves = [_lapsing(engine, job) for job in jobs if not job.outcome]
    store = engine.store
    if store.transactional:
        is_absent = Commit(worker_registry.PARTITION, (Delete(worker, expect=NO_VERSION),))
        held = store.together([Group((move,), commits=(is_absent,)) for move in moves])
    elif any(one.worker == worker for one in present(store)):
        return 0
    else:
        held = store.settle(moves)
    engine.wake(place_of(move) for move, sure in zip(moves, held, strict=True) if sure)
    return sum(held)


def _lapsing(engine: Engine, job: Job) -> Move:
    """Make the verdict; what was claimed before its time is not due before it."""
    at_us = max(engine.time.earliest_us(), job.claimed_us + AHEAD_US)
    bucket = bucket_of(at_us, engine.catalog.settings(job.lane.queue).width_us)
    return Move(job, at_us, engine.ids.token(), bucket, job.errors, job.crashes, job.alone,
                state=job.state, error=job.error)  # fmt: skip
