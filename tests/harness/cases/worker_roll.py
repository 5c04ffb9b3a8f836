"""Lane lists of which only what may be new is read again."""

from collections.abc import Callable

from dueline.core.clock import SECOND_US
from dueline.core.job import Job, JobId
from dueline.core.lane import GUARD_US, Pointer, bucket_of
from dueline.core.queue_settings import QueueSettings
from dueline.core.store import LanePage, Lease, Move, Want
from dueline.jobs.queue import EnqueueRequest, Queues
from dueline.worker.claimer import Claimer
from dueline.worker.lane_list import FEW
from tests.harness.clocks import HandClock
from tests.harness.cluster import Cluster
from tests.harness.failing_store import FailingStore
from tests.harness.interleaving import Act, Turns, every_order
from tests.harness.queues import queues_on
from tests.harness.stepped_store import SteppedMemoryStore

WIDTH_US = 10 * SECOND_US


SETTINGS = QueueSettings(width_us=WIDTH_US, history="off")


LEASE_US = SETTINGS.lease_us


BUCKETS = 3 * FEW
"""So many lanes lie below `closed`."""


class Counting(FailingStore):
    """Counts the pointers that were read, and the lanes that were visited."""

    def __init__(self, store: SteppedMemoryStore) -> None:
        super().__init__(store, {})
        self.pointers = self.visits = 0

    def lanes(
        self, queue: str, shard: int, *, until_bucket: int, after: Pointer | None, limit: int
    ) -> LanePage:
        page = super().lanes(queue, shard, until_bucket=until_bucket, after=after, limit=limit)
        self.pointers += len(page.pointers)
        return page

    def claim(self, wants, **how):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN003, ANN201
        self.visits += len(wants)
        return super().claim(wants, **how)


def nothing(_step: str) -> None:
    """Let a step happen."""


def engine_of(
    clock: HandClock, cluster: Cluster, step: Callable[[str], None] = nothing
) -> tuple[Queues, Counting]:
    """Make the engine of one process, on the model without transactions."""
    store = Counting(SteppedMemoryStore(clock, cluster=cluster, step=step))
    queues = queues_on(store, clock, SETTINGS)
    queues.engine.time.latest_us()
    return queues, store


def put(queues: Queues, at_us: int) -> JobId:
    """Enqueue a job that was due at some time."""
    return queues.enqueue(EnqueueRequest("q", "t", 0, [b"[1]"], at_us))[0].id


def sweep(queues: Queues) -> None:
    """Close what is past."""
    queues.engine.store.sweep("q", 0, now_us=queues.engine.time.latest_us(), width_us=WIDTH_US)


def backlog(queues: Queues, clock: HandClock, lanes: int = BUCKETS) -> list[JobId]:
    """Put a job into each of some lanes, and close them."""
    ids = []
    for _ in range(lanes):
        ids.append(put(queues, clock.wall_us()))
        clock.advance(us=WIDTH_US)
    clock.advance(us=GUARD_US)
    sweep(queues)
    return ids


def take(queues: Queues, job_id: JobId, worker: str = "other") -> Job:
    """Have another worker claim a job's lane."""
    row = queues.find(job_id).row
    assert row is not None
    claimed = queues.engine.store.claim(
        [Want(row.lane, 9)],
        limit=9,
        lease=Lease(queues.engine.time.earliest_us(), LEASE_US, worker, queues.engine.ids.token()),
    )
    return next(job for job in claimed.jobs if job.id == job_id)


def release(queues: Queues, job: Job) -> None:
    """Give a job back, to be run at once."""
    now_us = queues.engine.time.latest_us()
    move = Move(job, now_us, queues.engine.ids.token(), bucket_of(now_us, WIDTH_US), 0, 0)
    assert queues.engine.store.settle([move]) == [True]


def claim(claimer: Claimer, limit: int = 100) -> set[JobId]:
    """Claim what is known to be due."""
    found: set[JobId] = set()
    while len(found) < limit and (taken := claimer.claim(limit - len(found), {})):
        found |= {one.job.id for one in taken}
    return found


Begin = Callable[[HandClock, Queues, Claimer], tuple[JobId, Act]]
"""Brings a worker to where it has looked once; gives a job, and how another gives it back."""


def while_it_looks_twice(begin: Begin, switches_max: int, *, then_us: int = 0) -> int:
    """Let a job be given back while a worker looks twice; so much later it looks once more."""

    def lead(turns: Turns) -> None:
        clock, cluster = HandClock(), Cluster()
        mine, _ = engine_of(clock, cluster, turns.step)
        other, _ = engine_of(clock, cluster, turns.step)
        claimer = Claimer(mine.engine, ["q"], "w1")
        job_id, give_back = begin(clock, other, claimer)
        found: set[JobId] = set()

        def look_twice() -> None:
            for _ in range(2):
                claimer.refresh()
                found.update(claim(claimer))

        turns.run([look_twice, give_back])
        clock.advance(us=then_us)
        claimer.refresh()
        assert job_id in found | claim(claimer)

    return every_order(lead, switches_max=switches_max)


def a_job_comes_back(switches_max: int = 3) -> int:
    """Let a claimed job be given back, and its bucket be closed, while a worker looks."""

    def begin(clock: HandClock, other: Queues, claimer: Claimer) -> tuple[JobId, Act]:
        backlog(other, clock, FEW)
        claimer.refresh()
        claim(claimer)
        job = take(other, put(other, clock.wall_us()))

        def give_back_and_close() -> None:
            release(other, job)
            clock.advance(us=WIDTH_US + GUARD_US)
            sweep(other)

        return job.id, give_back_and_close

    return while_it_looks_twice(begin, switches_max)


def a_job_of_a_known_lane_comes_back(switches_max: int = 3) -> int:
    """Let a job of a lane that was closed long ago be given back while a worker looks."""

    def begin(clock: HandClock, other: Queues, claimer: Claimer) -> tuple[JobId, Act]:
        job, *_ = [take(other, job_id) for job_id in backlog(other, clock, FEW)]
        claimer.refresh()
        claim(claimer)
        return job.id, lambda: release(other, job)

    # What is remembered of lanes is read anew by then (rule R3).
    return while_it_looks_twice(begin, switches_max, then_us=LEASE_US // 2 + 1)


def a_job_is_born(switches_max: int = 3) -> int:
    """Let a job be put, and its bucket be closed, while a worker looks."""

    def lead(turns: Turns) -> None:
        clock, cluster = HandClock(), Cluster()
        mine, _ = engine_of(clock, cluster, turns.step)
        other, _ = engine_of(clock, cluster, turns.step)
        backlog(other, clock, FEW)
        claimer = Claimer(mine.engine, ["q"], "w1")
        claimer.refresh()
        ids: list[JobId] = []

        def put_and_close() -> None:
            ids.append(put(other, clock.wall_us()))
            clock.advance(us=2 * WIDTH_US + GUARD_US)
            sweep(other)

        turns.run([claimer.refresh, put_and_close])
        claimer.refresh()
        assert ids[0] in claim(claimer)

    return every_order(lead, switches_max=switches_max)
