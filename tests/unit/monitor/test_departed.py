"""Freeing what the dead hold."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from dueline.coordination import worker_registry
from dueline.coordination.worker_registry import Registration, present
from dueline.core.attempt import Outcome
from dueline.core.job import State
from dueline.core.store import Drop, Extend, Lease, Record, Want
from dueline.jobs.history import died
from dueline.monitor.dead_workers import release_dead_worker
from dueline.worker.heartbeat import Load, PresenceReporter
from tests.harness.clocks import HandClock
from tests.harness.cluster import Cluster
from tests.harness.dead_workers import LONG_US, SHORT_S, beat, claim, free_all
from tests.harness.interleaving import Turns, every_order
from tests.harness.queues import queues_on
from tests.harness.stepped_store import SteppedMemoryStore
from tests.harness.world import LEASE_US, World


def test_what_a_dead_worker_held_is_due_long_before_its_lease_ends(world: World) -> None:
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


def test_a_worker_of_this_very_process_is_not_dead_when_it_was_silent(world: World) -> None:
    # rule M3: the machine stood still, and the monitor beside it looks before it has beaten again
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


def test_heartbeats_are_not_read_for_workers_of_this_very_process(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    # O3: every two seconds, on an idle store
    beat(world)
    reads: list[str] = []
    read = world.store.read

    def noted(partition: str, *, after: str | None, limit: int) -> Sequence[Record]:
        reads.append(partition)
        return read(partition, after=after, limit=limit)

    monkeypatch.setattr(world.store, "read", noted)
    assert release_dead_worker(world.queues.engine, None).acts == 0
    assert reads == [worker_registry.REGISTRATIONS]


def test_whoever_claims_it_next_tells_who_died_on_it(world: World) -> None:
    job_id = world.put()
    beat(world)
    claim(world)
    free_all(world, "w1")
    world.clock.advance(1)
    before = world.store.claim(
        [Want(world.row(job_id).lane, 1)],
        limit=1,
        lease=Lease(world.now_us, LEASE_US, "w2", world.queues.engine.ids.token()),
    ).died[job_id]
    assert died(before).worker == "w1"


def test_no_claim_of_a_worker_that_beats_is_touched(world: World) -> None:
    job_id = world.put()
    beat(world)
    claim(world)
    world.clock.advance(SHORT_S - 1)
    before = world.row(job_id)
    assert free_all(world) == 0
    assert world.row(job_id) == before
    assert [entry.registration.worker for entry in worker_registry.registrations(world.store)] == [
        "w1"
    ]


def test_no_claim_is_touched_of_somebody_who_was_never_on_the_roster(world: World) -> None:
    job_id = world.put()
    beat(world, "w2")
    claim(world, "by hand")
    world.clock.advance(SHORT_S)
    before = world.row(job_id)
    assert free_all(world, "w2", "by hand") == 0
    assert world.row(job_id) == before


def test_a_process_that_has_ended_for_certain_needs_miss_no_beat(world: World) -> None:
    job_id = world.put()
    beat(world)
    claim(world)
    assert free_all(world, "w1") == 1
    world.clock.advance(1)
    assert world.row(job_id).at_us <= world.now_us
    assert not present(world.store)


def test_a_worker_that_only_stood_still_has_its_verdict_refused(world: World) -> None:
    # rule P2
    world.queues.engine.catalog.configure("q", lease_us=LONG_US)
    job_id = world.put()
    beat(world, queues=("q", "other"))
    job = claim(world, lease_us=LONG_US)
    world.clock.advance(SHORT_S)
    assert free_all(world) == 1
    beat(world, queues=("q", "other"))  # it goes on
    assert world.store.settle([Extend(job, job.at_us), Drop(job)]) == [False, False]
    assert world.row(job_id).id == job_id
    assert [entry.registration.worker for entry in worker_registry.registrations(world.store)] == [
        "w1"
    ]


def test_a_worker_that_comes_back_meanwhile_keeps_its_claims(world: World) -> None:
    """It beats again after it was found to be silent, before the verdict."""
    world.queues.engine.catalog.configure("q", lease_us=LONG_US)
    job_id = world.put()
    reporter = PresenceReporter(world.queues.engine, "w1", serving=("q", "other"))
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


def test_an_end_that_is_decided_is_left_to_who_repeats_its_effects(world: World) -> None:
    world.put()
    beat(world)
    job = claim(world)
    world.end(job, Outcome("done", world.now_us))
    if not world.store.transactional:
        assert world.queues.find(job.id).status == "done"
    assert free_all(world, "w1") == 0


def test_a_job_claimed_ahead_of_its_time_is_not_due_before_it(world: World) -> None:
    job_id = world.put()
    beat(world)
    claim(world)
    free_all(world, "w1")
    assert world.row(job_id).at_us > world.now_us


def test_only_claims_are_freed_and_all_pages_of_them(world: World) -> None:
    ids = [world.put() for _ in range(3)]
    later = [world.put(after_s=20 + number) for number in range(3)]
    beat(world)
    for _ in ids:
        claim(world)
    assert free_all(world, "w1") == 3
    assert [world.row(job_id).state for job_id in later] == [State.WAITING] * 3


def test_one_that_leaves_is_off_the_roster(world: World) -> None:
    reporter = PresenceReporter(world.queues.engine, "w1", serving=("q",))
    reporter.report(Load(slots=1, held=0))
    reporter.end()
    assert worker_registry.registrations(world.store) == []
    assert not present(world.store)


def test_one_that_was_struck_off_is_on_the_roster_again_with_its_next_beat(world: World) -> None:
    reporter = PresenceReporter(world.queues.engine, "w1", serving=("q",))
    reporter.report(Load(slots=1, held=0))
    world.clock.advance(SHORT_S)
    free_all(world)
    assert worker_registry.registrations(world.store) == []
    reporter.report(Load(slots=1, held=0))
    assert [entry.registration.worker for entry in worker_registry.registrations(world.store)] == [
        "w1"
    ]


def test_a_return_right_before_it_is_struck_off_keeps_its_entry(world: World) -> None:
    worker_registry.register(world.store, Registration("w1", ("q",)), version=b"1" * 16)
    (entry,) = worker_registry.registrations(world.store)
    worker_registry.register(world.store, Registration("w1", ("q",)), version=b"2" * 16)
    assert not worker_registry.unregister(world.store, "w1", version=entry.version)
    assert len(worker_registry.registrations(world.store)) == 1


def test_the_dead_are_seen_to_one_by_one_in_all_their_queues(world: World) -> None:
    jobs = {}
    for worker in ("w1", "w2", "w3"):
        jobs[worker] = world.put(queue=worker)
        beat(world, worker, queues=("q", worker))
        lane = world.row(jobs[worker]).lane
        world.store.claim(
            [Want(lane, 1)],
            limit=1,
            lease=Lease(world.now_us, LEASE_US, worker, world.queues.engine.ids.token()),
        )
    assert free_all(world, "w1", "w3") == 2
    world.clock.advance(1)
    due = [world.row(job_id).at_us <= world.now_us for job_id in jobs.values()]
    assert due == [True, False, True]


@pytest.mark.slow
def test_a_return_in_any_order_ends_the_job_once() -> None:
    """Let a worker go on while what it holds is freed, in every order of their steps."""
    # rules P2 and M1
    ends = set()

    def lead(turns: Turns) -> None:
        clock, cluster = HandClock(), Cluster()
        engines = [
            queues_on(SteppedMemoryStore(clock, cluster=cluster, step=turns.step), clock)
            for _ in range(2)
        ]  # fmt: skip
        monitor, engine = engines
        world = World(engine.engine.store, clock)
        job_id = world.put()
        monitor.engine.catalog.settings("q")
        monitor.engine.time.latest_us()
        worker_registry.register(engine.engine.store, Registration("w1", ("q",)), version=b"1" * 16)
        job = claim(world)
        held: list[bool] = []

        def go_on() -> None:
            extended = engine.engine.store.settle([Extend(job, job.at_us + 1, started=True)])
            held.extend([*extended, *engine.engine.store.settle([Drop(job)])])

        turns.run(
            [lambda: release_dead_worker(monitor.engine, None, has_ended=lambda _: None), go_on]
        )
        (row,) = engine.engine.store.find([job_id])
        assert (row is None) == held[-1]
        assert held in ([True, True], [True, False], [False, False])
        if row is not None:  # it is due: another has it
            assert row.token != job.token
            clock.advance(1)
            assert claim(world, "w2").fence == 2
        ends.add(row is None)

    count = every_order(lead)
    assert ends == {True, False}
    assert count > 10
