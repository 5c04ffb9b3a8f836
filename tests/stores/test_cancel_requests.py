"""Laws of cancel requests on every store: ends agree with what callers are told (rules P11, P12).

One process cancels a job while another one stores how its attempt ends: each of them acts before
any call of the other.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from dueline.core.attempt import Done, Ended, Ending, Failed, GivenBack, Snoozed
from dueline.core.clock import SECOND_US
from dueline.core.errors import Conflict
from dueline.core.job import Job
from dueline.core.retry import Retry
from dueline.core.store import Lease, Store, Want
from dueline.worker.cancellations import Cancellations
from tests.harness.addresses import IN_MEMORY, WITH_ADDRESS, world_of
from tests.harness.failing_store import Interrupted
from tests.harness.worker_bench import settler_of
from tests.harness.world import LEASE_US, World

STEPS_MAX = 30
ROUNDS = 3
ENDINGS: dict[str, Ending] = {
    "done": Done(b"1"),
    "retried": Failed("ValueError", "no", "", retry=True),
    "dead": Failed("ValueError", "no", "", retry=False),
    "snoozed": Snoozed(SECOND_US),
    "released": GivenBack(),
}
FINAL = {"done": "done", "dead": "dead"}
"""States of ends that are decided once the worker has read its requests for the last time."""

ENDS, ASKED, TOO_LATE = "ends", "asked", "too late"


@pytest.fixture(params=[*IN_MEMORY, *WITH_ADDRESS])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    with world_of(request.param, tmp_path) as made:
        yield made


class Worker:
    """Claims the jobs of a world, and ends them, on a store of its own."""

    def __init__(self, world: World, store: Store, name: str) -> None:
        self.queues = world.other(store)
        self._world, self._name = world, name
        self._settler = settler_of(self.queues, Retry(delays=[1, 1]))
        self._cancellations = Cancellations(self.queues.engine, name, world.clock)

    def claim(self, job: Job) -> Job | None:
        """Claim a job; None if it is not due."""
        lease = Lease(self._world.now_us, LEASE_US, self._name, self.queues.engine.ids.token())
        jobs = self.queues.engine.store.claim([Want(job.lane, 1)], limit=1, lease=lease).jobs
        return next(iter(jobs), None)

    def end(self, row: Job, ending: Ending) -> None:
        """Store how an attempt ended, as a worker does."""
        ended = [Ended(row, ending, self._world.now_us, self._world.now_us)]
        self._settler.settle(ended, [], self._cancellations.known_before(ended))

    def runs(self, job: Job) -> bool:
        """Claim a job when it is due; return whether its handler is called, and end it then."""
        self._world.clock.advance(us=LEASE_US)
        row = self.claim(job)
        if row is None:
            return False
        refused = self._cancellations.refused([row])
        self._settler.settle(refused or [Ended(row, Done(b""), row.at_us, row.at_us)], [])
        return not refused


def cancelled_by(world: World, store: Store, job: Job) -> str:
    """Cancel a job; return what the caller is told."""
    try:
        return ENDS if world.other(store).cancel(job.id) else ASKED
    except Conflict:
        return TOO_LATE


def check(world: World, job: Job, told: str, *, ending: str, is_read: bool) -> None:
    """Check what becomes of a job against what the caller was told.

    Args:
      is_read: The worker has read its requests for the last time before it was asked.
    """
    other = Worker(world, world.store, "other")
    has_run = any(other.runs(job) for _ in range(ROUNDS))
    status = world.other().find(job.id).status
    if told == TOO_LATE:
        assert status in ("done", "dead")
        if status == "dead":  # no request is left that would end the retry
            world.other().retry(job.id)
            assert Worker(world, world.store, "third").runs(job)
        return
    assert not has_run
    if told == ENDS:
        assert status == "cancelled"
    else:
        assert status == "cancelled" or (is_read and status == FINAL[ending]) or status == "done"


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_job_that_is_cancelled_while_its_attempt_ends(world: World, ending: str) -> None:
    """Someone cancels it before each call of its worker."""
    for step in range(1, STEPS_MAX):
        told: list[str] = []
        store = Interrupted(world.store, 0, lambda: None)
        worker = Worker(world, store, "w")
        job = world.row(world.put(queue=f"q{step}", task="tests.task"))
        row = worker.claim(job)
        assert row is not None

        def act(told: list[str] = told, job: Job = job) -> None:
            told.append(cancelled_by(world, world.store, job))

        store.calls, store.number, store.act = 0, step, act
        worker.end(row, ENDINGS[ending])
        if not told:
            return
        check(world, job, told[0], ending=ending, is_read=step > 1)
    raise AssertionError("it never comes to an end")


@pytest.mark.parametrize("ending", ENDINGS)
def test_an_attempt_that_ends_while_its_job_is_cancelled(world: World, ending: str) -> None:
    """Its worker ends it before each call of the one who cancels."""
    for step in range(1, STEPS_MAX):
        worker = Worker(world, world.store, "w")
        job = world.row(world.put(queue=f"q{step}", task="tests.task"))
        row = worker.claim(job)
        assert row is not None
        store = Interrupted(world.store, step, lambda: None)
        has_acted: list[bool] = []

        def act(worker: Worker = worker, row: Job = row, acted: list[bool] = has_acted) -> None:
            worker.end(row, ENDINGS[ending])
            acted.append(True)

        store.act = act
        told = cancelled_by(world, store, job)
        if not has_acted:
            worker.end(row, ENDINGS[ending])
            check(world, job, told, ending=ending, is_read=False)
            return
        check(world, job, told, ending=ending, is_read=False)
    raise AssertionError("it never comes to an end")
