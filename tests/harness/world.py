"""A store, its engine, workers that only say that they live."""

import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from dueline.api.connect import open_store
from dueline.coordination.worker_registry import Presence, announce, leave
from dueline.core.attempt import Attempt, Outcome
from dueline.core.clock import SECOND_US
from dueline.core.job import Job, JobId
from dueline.core.lane import bucket_of
from dueline.core.queue_settings import QueueSettings
from dueline.core.store import Extend, Lease, Move, Store, Want
from dueline.jobs.completion import Finished, finish, finish_of
from dueline.jobs.queue import EnqueueRequest, Queues
from dueline.limits import semaphore
from dueline.limits.semaphore import Hold, PermitRequest
from dueline.stores.memory.store import MemoryStore
from dueline.stores.sqlite.store import SqliteStore
from tests.harness.clocks import HandClock
from tests.harness.queues import queues_on
from tests.harness.redis import new_url
from tests.harness.stepped_store import SteppedMemoryStore

LEASE_US = 30 * SECOND_US

KINDS = [
    pytest.param("memory", marks=pytest.mark.memory),
    pytest.param("sqlite", marks=pytest.mark.sqlite),
]

EVERY_KIND = [
    *KINDS,
    pytest.param("steps", marks=pytest.mark.memory),
]
"""With the one that is not transactional."""


class World:
    """A queue engine on a clock that is moved by hand."""

    def __init__(self, store: Store, clock: HandClock) -> None:
        """Take a store that reads the same clock."""
        self.clock = clock
        self.store = store
        self.queues = queues_on(store, clock)

    def other(self, store: Store | None = None) -> Queues:
        """Make the queues of another process, on this store or on one that wraps it."""
        return queues_on(store or self.store, self.clock)

    @property
    def now_us(self) -> int:
        """The present."""
        return self.clock.wall_us()

    def put(
        self,
        *,
        queue: str = "q",
        task: str = "t",
        after_s: float = 0,
        priority: int = 0,
        tenant: str = "",
        limits: Sequence[str] = (),
    ) -> JobId:
        """Enqueue a job; answer its id."""
        due_us = self.now_us + round(after_s * SECOND_US)
        call = EnqueueRequest(queue, task, 0, [b"[1]"], due_us, priority, tenant,
                     limits=[limits] if limits else ())  # fmt: skip
        return self.queues.enqueue(call)[0].id

    def hold(self, limit: str, worker: str = "w1", count: int = 1, *, lasts_s: float = 30) -> None:
        """Let a worker hold so many permits of a limit from now on."""
        permits, version = semaphore.read(self.store, limit)
        hold = Hold(count, self.now_us + round(lasts_s * SECOND_US))
        held = semaphore.with_hold(permits, worker, hold, self.now_us)
        assert semaphore.write(self.store, limit, held, expect=version, ids=self.queues.engine.ids)

    def wait_for(self, limit: str, worker: str, count: int = 1, *, queue: str = "q") -> None:
        """Let a worker wait for so many permits of a limit."""
        permits, version = semaphore.read(self.store, limit)
        asked = semaphore.with_wait(
            permits, worker, PermitRequest(count, 0, self.now_us, queue), self.now_us
        )
        assert asked is not None
        assert semaphore.write(self.store, limit, asked, expect=version, ids=self.queues.engine.ids)

    def row(self, job_id: JobId) -> Job:
        """Read a job's row."""
        row = self.store.find([job_id])[0]
        assert row is not None
        return row

    def claim(self, job_id: JobId, *, worker: str = "w1", start: bool = False) -> Job:
        """Claim all that is due in a job's lane, unless that was done; answer that job."""
        row = self.row(job_id)
        if row.is_claimed() and row.at_us > self.now_us:
            return row
        claimed = self.store.claim(
            [Want(row.lane, 100)],
            limit=100,
            lease=Lease(self.now_us, LEASE_US, worker, self.queues.engine.ids.token()),
        )
        job = next(job for job in claimed.jobs if job.id == job_id)
        if start:
            assert self.store.settle([Extend(job, job.at_us, started=True)]) == [True]
        return job

    def back(self, job: Job, *, after_s: float, errors: int = 0, error: str = "") -> None:
        """End a claim: the job is tried again after so long."""
        at_us = self.now_us + round(after_s * SECOND_US)
        bucket = bucket_of(at_us, QueueSettings().width_us)
        move = Move(job, at_us, self.queues.engine.ids.token(), bucket, errors, 0, error=error)
        assert self.store.settle([move]) == [True]

    def end(self, job: Job, outcome: Outcome) -> None:
        """End a job for good, with a row of history."""
        lane = job.lane
        attempt = Attempt(
            job=job.id.hex(), task=job.task, queue=lane.queue, tenant=lane.tenant,
            priority=lane.priority, enqueued_us=job.enqueued_us, due_us=job.due_us,
            claimed_us=job.claimed_us, started_us=job.claimed_us, ended_us=outcome.ended_us,
            outcome=outcome.state, error=outcome.error, worker=job.worker, fence=job.fence,
        )  # fmt: skip
        done = finish_of(job, outcome, attempt, self.queues.engine.catalog.settings(lane.queue))
        assert finish(self.store, [Finished(job, done)]) == [True]

    def die(self, job_id: JobId, error: str = "ValueError: bad") -> None:
        """Have a job that is due fail for good."""
        self.end(self.claim(job_id), Outcome("dead", self.now_us, error=error))

    def live(
        self,
        worker: str = "w1",
        *,
        queues: Sequence[str] = ("q",),
        tasks: Sequence[str] = ("t",),
        held: int = 0,
        skew_us: int = 0,
        started_us: int | None = None,
        is_quiet: bool = False,
    ) -> None:
        """Have a worker beat; it is taken for gone after 30 s."""
        presence = Presence(
            worker, tuple(queues), tuple(tasks), 4, held,
            self.now_us if started_us is None else started_us, self.now_us, skew_us,
            is_quiet=is_quiet,
        )  # fmt: skip
        version = self.queues.engine.ids.token()
        announce(self.store, presence, version=version, beat_every_us=10 * SECOND_US)

    def leave(self, worker: str = "w1") -> None:
        """Have a worker say that it ends."""
        leave(self.store, worker)


def store_on(kind: str, folder: Path, clock: HandClock) -> Store:
    """Open a fresh store of a kind."""
    if kind == "memory":
        return MemoryStore(clock)
    if kind == "steps":
        return SteppedMemoryStore(clock)
    if kind == "redis":
        store = open_store(new_url(), clock=clock)
        store.clock_us = clock.wall_us  # type: ignore[method-assign]
        return store
    return SqliteStore(folder / "jobs.db", clock=clock, synchronous="NORMAL")


def clock_for(*kinds: str) -> HandClock:
    """Return a clock for stores of some kinds; a server expires records by its own clock."""
    return HandClock(time.time_ns() // 1000) if "redis" in kinds else HandClock()


def world_on(kind: str, folder: Path) -> World:
    """Make a world on a fresh store of a kind."""
    clock = clock_for(kind)
    return World(store_on(kind, folder, clock), clock)


def dead_jobs(world: World, count: int = 14, queue: str = "q") -> list[JobId]:
    """Have so many jobs of several lanes die."""
    ids = [
        world.put(queue=queue, priority=number % 2, tenant="ab"[number % 3 == 0])
        for number in range(count)
    ]
    for job_id in ids:
        world.die(job_id)
    return ids
