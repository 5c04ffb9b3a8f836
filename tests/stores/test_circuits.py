"""Tasks that pause themselves when they fail, on each kind of store (R5, R18)."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from time import sleep
from typing import Any

import pytest

from dueline import BadInput, Dueline, Failures, Retry
from dueline.core.attempt import Crashed, Done, Ended, Ending, Failed
from dueline.core.clock import SECOND_US
from dueline.core.job import Job, JobId, State
from dueline.core.store import Drop, Extend, Lease, Want
from dueline.foresight.alert_engine import Note, judge, view_of
from dueline.jobs import circuit_records, circuits, pauses
from dueline.jobs.explain import explain
from dueline.jobs.paused_tasks import clear, defer, is_deferred
from dueline.jobs.queue import EnqueueRequest, Queues
from dueline.tasks.failure_limits import Failures as Terms
from dueline.worker.circuits import Circuits
from dueline.worker.claimer import ClaimedJob
from tests.harness.addresses import IN_MEMORY, LONG_ON_CASSANDRA, address
from tests.harness.programs import wait_for
from tests.harness.world import EVERY_KIND, World, world_on

TERMS = Terms(3, of=5, probe_every=60)
FAILED = Failed("ValueError", "no", "", retry=True)
DONE = Done(b"")
PLACE = ("q", "t")


def stocked(kind: str, folder: Path) -> World:
    """Make a store with five jobs of a task."""
    made = world_on(kind, folder)
    made.queues.enqueue(EnqueueRequest("q", "t", 0, [b"[]"] * 5))
    return made


@pytest.fixture(params=EVERY_KIND)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    """Open an empty store of each kind, with five jobs of a task."""
    made = stocked(request.param, tmp_path)
    yield made
    made.store.close()


@pytest.fixture(params=[*IN_MEMORY, *LONG_ON_CASSANDRA])
def app(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Dueline]:
    """Open an application on each kind of store, servers too."""
    with address(request.param, tmp_path) as url:
        made = Dueline(url)
        yield made
        made.close()


def worker(world: World, terms: Terms = TERMS) -> Circuits:
    """Begin the circuits of another worker."""
    return Circuits(world.queues.engine, {"t": terms}, ["q"])


def claimed(queues: Queues, most: int = 1) -> list[Job]:
    """Claim as a worker does."""
    engine = queues.engine
    lease = Lease(engine.time.earliest_us(), 30 * SECOND_US, "w", engine.ids.token())
    wants = [Want(lane, most) for lane in engine.lanes_of("q")]
    return list(engine.store.claim(wants, limit=most, lease=lease).jobs)


def end(own: Circuits, jobs: list[Job], *endings: Ending) -> None:
    """Let attempts end."""
    own.ended([Ended(job, ending, 1, 2) for job, ending in zip(jobs, endings, strict=True)])


def is_paused(world: World) -> bool:
    """Say whether the task is paused, as any process reads it."""
    world.queues.engine.catalog.forget("q")
    return "t" in world.queues.engine.catalog.settings("q").paused_tasks


def opened(world: World) -> Circuits:
    """Let attempts fail until the circuit opens; defer all jobs."""
    own = worker(world)
    jobs = claimed(world.queues, 5)
    end(own, jobs[:3], FAILED, FAILED, FAILED)
    assert is_paused(world)
    defer(world.queues.engine, jobs)
    return own


def probe(world: World, own: Circuits) -> Job:
    """Claim the job that probes the circuit."""
    world.clock.advance(61)
    own.check()
    jobs = claimed(world.queues, 5)
    assert len(jobs) == 1
    assert own.lets_probe(jobs[0])
    return jobs[0]


def test_failures_of_all_workers_open_a_circuit(world: World) -> None:
    first, second = worker(world), worker(world)
    jobs = claimed(world.queues, 3)
    end(first, jobs[:2], FAILED, DONE)
    end(second, jobs[:2], FAILED, DONE)
    assert not is_paused(world)
    end(second, jobs[:1], FAILED)
    assert is_paused(world)
    (circuit,) = circuit_records.open_in(world.store, "q").values()
    assert (circuit.failed, circuit.of) == (3, 5)


def test_failures_among_many_successes_open_none(world: World) -> None:
    own = worker(world)
    jobs = claimed(world.queues, 5)
    for _ in range(4):
        end(own, jobs, FAILED, DONE, DONE, FAILED, DONE)
    assert not is_paused(world)


def test_a_crash_counts_for_the_job_that_ran_alone(world: World) -> None:
    own = worker(world)
    jobs = claimed(world.queues, 3)
    end(own, jobs, *[Crashed("signal 9")] * 3)
    own.died([ClaimedJob(job, job._replace(state=State.STARTED)) for job in jobs])
    own.died([ClaimedJob(job, job._replace(alone=True)) for job in jobs])  # none had started
    assert circuit_records.read(world.store, *PLACE)[1] == b""
    end(own, [job._replace(alone=True) for job in jobs], *[Crashed("signal 9")] * 3)
    assert is_paused(world)


def test_jobs_that_crash_alike_pause_a_task_that_succeeds_otherwise(world: World) -> None:
    own = worker(world, replace(TERMS, crashes=2))
    jobs = [job._replace(alone=True) for job in claimed(world.queues, 5)]
    segfault = Crashed("signal 11")
    end(own, jobs, DONE, DONE, DONE, DONE, segfault)
    end(own, jobs, DONE, DONE, DONE, DONE, segfault)  # the same job once more
    end(own, jobs, DONE, DONE, DONE, Crashed("signal 9"), DONE)
    world.clock.advance(86_401)
    end(own, jobs, DONE, DONE, DONE, segfault, DONE)  # the other one was more than a day ago
    assert not is_paused(world)
    end(own, jobs, DONE, DONE, segfault, DONE, DONE)
    assert is_paused(world)
    told = explain(world.queues, jobs[0].id)
    assert "since 2 jobs crashed in the same way (signal 11); one job probes it" in told.sentence


def test_a_task_that_succeeds_writes_nothing(world: World) -> None:
    own = worker(world)
    jobs = claimed(world.queues, 5)
    end(own, jobs, DONE, DONE, DONE, DONE, DONE)
    assert circuit_records.read(world.store, *PLACE)[1] == b""


def test_one_job_probes_at_a_time_and_its_success_resumes(world: World) -> None:
    own = opened(world)
    own.check()
    assert claimed(world.queues, 5) == []
    job = probe(world, own)
    assert not worker(world).lets_probe(job._replace(id=JobId(bytes(16))))
    end(own, [job], DONE)
    assert not is_paused(world)
    assert circuit_records.open_in(world.store, "q") == {}
    assert len(claimed(world.queues, 5)) == 4


def test_a_probe_that_fails_is_followed_by_another(world: World) -> None:
    own = opened(world)
    job = probe(world, own)
    end(own, [job], FAILED)
    assert is_paused(world)
    assert not own.lets_probe(job)  # its own retry waits
    world.store.settle([Drop(job)])
    own.check()
    assert claimed(world.queues, 5) == []
    assert probe(world, own).id != job.id


def test_a_worker_that_is_killed_while_probing_holds_nothing_up(world: World) -> None:
    own = opened(world)
    first = probe(world, own)
    world.clock.advance(31)  # its lease is over
    other = worker(world)
    other.check()
    (again,) = claimed(world.queues, 5)
    assert again.id == first.id
    assert not other.lets_probe(again)  # it would be a second one within the period
    defer(world.queues.engine, [again])
    end(other, [probe(world, other)], DONE)
    assert not is_paused(world)


def test_a_probe_that_outlasts_the_period_is_the_only_one(world: World) -> None:
    own = opened(world)
    job = probe(world, own)
    for _ in range(4):  # its worker extends its claim
        world.clock.advance(25)
        until_us = world.queues.engine.time.latest_us() + 30 * SECOND_US
        world.store.settle([Extend(job, until_us, started=True)])
        own.check()
        assert claimed(world.queues, 5) == []
    end(own, [job], DONE)
    assert not is_paused(world)


def test_a_change_that_comes_late_does_not_leave_a_pause(world: World) -> None:
    own = opened(world)
    job = probe(world, own)
    opening = circuit_records.read(world.store, *PLACE)
    end(own, [job], DONE)
    reads = iter([opening])  # what a slow process has read before
    read = circuit_records.read
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(circuit_records, "read", lambda *place: next(reads, None) or read(*place))
        circuits.restore(world.queues.engine, *PLACE)
    assert is_paused(world)
    world.clock.advance(2)
    own.check()
    assert not is_paused(world)


def test_a_process_that_dies_between_record_and_pause_is_made_up_for(world: World) -> None:
    engine = world.queues.engine
    opened(world)
    engine.catalog.configure("q", paused_tasks=(), tripped_tasks=())  # as before it was stored
    assert not is_paused(world)
    world.clock.advance(16)
    worker(world).check()
    assert is_paused(world)
    circuit, version = circuit_records.read(world.store, *PLACE)
    circuit_records.write(engine, *PLACE, replace(circuit, is_closing=True), version)
    world.clock.advance(16)
    worker(world).check()
    assert not is_paused(world)
    assert circuit_records.read(world.store, *PLACE)[1] == b""


def test_an_operator_has_the_last_word(world: World) -> None:
    engine = world.queues.engine
    own = opened(world)
    pauses.resume(engine, "q", tasks=["t"])
    world.clock.advance(16)
    own.check()
    assert not is_paused(world)
    opened_again = worker(world)
    jobs = claimed(world.queues, 3)
    end(opened_again, jobs, FAILED, FAILED, FAILED)
    pauses.pause(engine, "q", tasks=["t"])
    world.clock.advance(61)
    opened_again.check()
    assert is_paused(world)
    assert not circuit_records.open_in(world.store, "q")  # no probe ends it
    circuits.count(engine, *PLACE, "111", crashes=(), terms=TERMS)  # they began before the pause
    world.clock.advance(61)
    opened_again.check()
    assert not circuit_records.open_in(world.store, "q")
    assert is_paused(world)


def test_a_probe_is_not_deferred_with_others(world: World) -> None:
    own = opened(world)
    world.clock.advance(61)
    own.check()
    (lane,) = world.queues.engine.lanes_of("q")
    assert clear(world.queues.engine, lane, ["t"], own.probes) == 0
    rows = world.store.scan(lane, after=None, until_us=None, limit=9).jobs
    assert sum(not is_deferred(row) for row in rows) == 1


def test_explain_and_alerts_say_why(world: World) -> None:
    own = opened(world)
    engine = world.queues.engine
    (job_id,) = [row.id for row in engine.jobs_of("q")][:1]
    told = explain(world.queues, job_id)
    assert "is paused by itself, since 3 of its last 3 attempts failed" in told.sentence
    _, raised = judge(view_of(engine), "q", None, Note(), None)
    assert ("circuit", "t") in {(alert.condition.kind, alert.condition.subject) for alert in raised}
    probe(world, own)
    told = explain(world.queues, job_id)
    assert "one job probes it now, or the next at " in told.sentence


def test_a_worker_pauses_and_probes(app: Dueline) -> None:
    broken, ran = [True], []

    @app.task(name="t", retry=Retry.fixed(0, attempts=1), pause_after=Failures(2, probe_every=1))
    def act(number: int) -> None:
        ran.append(number)
        if broken[0]:
            sleep(0.01)
            raise ValueError(number)

    act.enqueue_many([(number,) for number in range(60)])
    with app.worker(concurrency=1):
        wait_for(lambda: app.queues.engine.catalog.settings("default").paused_tasks, "the pause")
        count = len(ran)
        assert count < 60
        broken[0] = False
        wait_for(lambda: len(ran) == 60, "the probe")
    assert app.engine.catalog.settings("default", age_us_max=1).tripped_tasks == ()
    assert circuit_records.open_in(app.store, "default") == {}


@pytest.mark.parametrize(
    ("given", "why"),
    [({"count": 0}, "count"), ({"count": 3, "of": 2}, "at least `count`"),
     ({"count": 3, "probe_every": 0.5}, "at least 1 s"), ({"count": 3, "crashes": 101}, "crashes")],
)  # fmt: skip
def test_terms_are_checked(given: dict[str, Any], why: str) -> None:
    with pytest.raises(BadInput, match=why):
        Failures(**given)
