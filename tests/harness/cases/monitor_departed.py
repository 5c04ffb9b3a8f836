"""Freeing what the dead hold."""

from dataclasses import replace

from dueline.coordination import worker_registry
from dueline.coordination.worker_registry import present
from dueline.core.job import Job, State
from dueline.core.store import Extend, Lease, Want
from dueline.monitor.dead_workers import release_dead_worker
from dueline.worker.heartbeat import Load, PresenceReporter
from tests.harness.dead_workers import LONG_US, SHORT_S, beat, free_all
from tests.harness.world import LEASE_US, World


def claim(world: World, worker: str = "w1", *, lease_us: int = LEASE_US) -> Job:
    """Claim the first job that is due."""
    (lane,) = world.queues.engine.lanes_of("q")
    (job,) = world.store.claim(
        [Want(lane, 1)],
        limit=1,
        lease=Lease(world.now_us, lease_us, worker, world.queues.engine.ids.token()),
    ).jobs
    return job


def what_a_dead_worker_held_is_due_long_before_its_lease_ends(world: World) -> None:
    # R7
    world.queues.engine.catalog.configure("q", lease_us=LONG_US)
    job_id = world.put()
    beat(world, queues=("q", "other"))  # whose lease, 30 s, is the shortest: three beats
    job = claim(world, lease_us=LONG_US)
    assert world.store.settle([Extend(job, job.at_us, started=True)]) == [True]
    world.clock.advance(SHORT_S)
    assert not present(world.store)
    assert free_all(world) == 1
    row = world.row(job_id)
    assert row.at_us <= world.now_us
    assert (row.state, row.worker) == (State.STARTED, "w1")
    again = claim(world, "w2")
    assert (again.id, again.fence, again.crashes) == (job_id, 2, 1)
    assert worker_registry.registrations(world.store) == []


def a_worker_of_this_very_process_is_not_dead_when_it_was_silent(world: World) -> None:
    # M3: the machine stood still, and the monitor beside it looks before it has beaten again
    world.queues.engine.catalog.configure("q", lease_us=LONG_US)
    job_id = world.put()
    beat(world, queues=("q", "other"))
    claim(world, lease_us=LONG_US)
    world.clock.advance(SHORT_S)
    assert not present(world.store)
    before = world.row(job_id)
    assert release_dead_worker(world.queues.engine, None).acts == 0
    assert world.row(job_id) == before
    assert len(worker_registry.registrations(world.store)) == 1
    ((here, _),) = worker_registry.registrations(world.store)
    worker_registry.register(world.store, replace(here, born=f"{here.born}1"), version=b"1" * 16)
    assert release_dead_worker(world.queues.engine, None).acts == 1


def no_claim_is_touched_of_somebody_who_was_never_on_the_roster(world: World) -> None:
    job_id = world.put()
    beat(world, "w2")
    claim(world, "by hand")
    world.clock.advance(SHORT_S)
    before = world.row(job_id)
    assert free_all(world, "w2", "by hand") == 0
    assert world.row(job_id) == before


def a_worker_that_comes_back_meanwhile_keeps_its_claims(world: World) -> None:
    """It beats again after it was found to be silent, before the verdict."""
    world.queues.engine.catalog.configure("q", lease_us=LONG_US)
    job_id = world.put()
    reporter = PresenceReporter(world.queues.engine, "w1", serving=("q", "other"), tasks=())
    reporter.report(Load(slots=4, held=0))
    claim(world, lease_us=LONG_US)
    world.clock.advance(SHORT_S)
    before = world.row(job_id)
    lanes = world.store.lanes

    def lanes_and_a_beat(*args: object, **kwargs: object) -> object:
        reporter.report(Load(slots=4, held=1))
        return lanes(*args, **kwargs)  # type: ignore[arg-type]

    world.store.lanes = lanes_and_a_beat  # type: ignore[method-assign, assignment]
    assert free_all(world) == 0
    assert world.row(job_id) == before
    assert [entry.registration.worker for entry in worker_registry.registrations(world.store)] == [
        "w1"
    ]
