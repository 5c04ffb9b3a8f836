"""Which jobs are claimed before another: as a worker claims them."""

from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given, strategies

from dueline.core.clock import SECOND_US
from dueline.core.job import JobId
from dueline.core.lane import with_task
from dueline.core.store import Move
from dueline.jobs import claim_order, pauses
from dueline.jobs.claim_order import Ahead, jobs_before, next_jobs
from dueline.worker.claimer import Claimer
from tests.harness.world import World, world_on


class Put(NamedTuple):
    """A job, and how long after the one before it comes."""

    queue: str
    priority: int
    tenant: str
    after_s: float


PUTS = strategies.builds(
    Put,
    strategies.sampled_from(["q", "q", "r"]),
    strategies.integers(0, 2),
    strategies.sampled_from(["", "", "a", "b"]),
    strategies.sampled_from([0.0, 0.4, 1.0, 3.0]),
)


def ahead_of(world: World, job_id: JobId, *names: str) -> Ahead:
    return jobs_before(world.queues.engine, world.row(job_id), names or ("q",), world.now_us)


def order(world: World, *names: str) -> list[JobId]:
    """Claim all that is due, one by one, as a worker with one slot does."""
    claimer = Claimer(world.queues.engine, names, "w1", lease_us=3600 * SECOND_US)
    claimer.refresh()
    job_ids: list[JobId] = []
    while taken := claimer.claim(1, {}):
        job_ids += [claimed.job.id for claimed in taken]
    return job_ids


@given(strategies.lists(PUTS, min_size=1, max_size=12), strategies.sampled_from([0, 1]))
def test_the_next_jobs_are_those_that_are_claimed(puts: list[Put], aging_s: int) -> None:
    # V3
    world = world_on("memory", Path())
    world.queues.engine.catalog.configure("q", aging_us=aging_s * SECOND_US)
    for _, priority, _, after_s in puts:
        world.clock.advance(after_s)
        world.put(priority=priority)
    world.clock.advance(0.05)
    said = [job.id for job in next_jobs(world.queues.engine, "q", world.now_us, limit=100)]
    assert next_jobs(world.queues.engine, "q", world.now_us, limit=1)[0].id == said[0]
    assert said == order(world, "q")


def check_all(world: World, job_ids: list[JobId], *names: str) -> None:
    """Compare what is said of each job with the order in which they are claimed."""
    said = {job_id: ahead_of(world, job_id, *names) for job_id in job_ids}
    claimed = order(world, *names)
    assert sorted(claimed) == sorted(job_ids)
    for place, job_id in enumerate(claimed):
        ahead = said[job_id]
        assert not ahead.is_capped
        if ahead.has_turns:
            assert place <= ahead.jobs
        else:
            assert place == ahead.jobs


@pytest.mark.long
@given(strategies.lists(PUTS, min_size=1, max_size=12), strategies.sampled_from([0, 1]))
def test_the_place_of_a_job_is_that_in_which_it_is_claimed(puts: list[Put], aging_s: int) -> None:
    # V4
    world = world_on("memory", Path())
    for name in ("q", "r"):
        world.queues.engine.catalog.configure(name, aging_us=aging_s * SECOND_US)
    job_ids = []
    for queue, priority, tenant, after_s in puts:
        world.clock.advance(after_s)
        tenant = "" if aging_s else tenant  # noqa: PLW2901  (both at once are an estimate)
        job_ids.append(world.put(queue=queue, priority=priority, tenant=tenant))
    world.clock.advance(0.05)  # between two steps of priority
    check_all(world, job_ids, "q", "r")


def test_tenants_take_turns_by_their_weights(tmp_path: Path) -> None:
    world = world_on("memory", tmp_path)
    for _ in range(20):
        world.put(tenant="big")
    mine = [world.put(tenant="small") for _ in range(3)]
    assert [ahead_of(world, job_id).jobs for job_id in mine] == [1, 3, 5]
    world.queues.engine.catalog.configure("q", weights=(("big", 3),))
    assert [ahead_of(world, job_id).jobs for job_id in mine] == [1, 5, 9]
    assert ahead_of(world, mine[0]).has_turns


def test_functions_that_have_begun_take_turns(tmp_path: Path) -> None:
    # V3, rule D16
    world = world_on("sqlite", tmp_path)
    ids = [world.put() for _ in range(6)]
    for job_id in ids[:3]:
        row = world.claim(job_id)
        move = Move(row, world.now_us, world.queues.engine.ids.token(), row.lane.bucket, 0, 0,
                    to=with_task(row.lane, "t", 0))  # fmt: skip
        world.store.settle([move])
    for job_id in ids[3:]:
        world.back(world.claim(job_id), after_s=0)
    world.clock.advance(0.05)
    assert ahead_of(world, ids[0])[:3] == ({"q": 1}, False, True)
    assert ahead_of(world, ids[5]).jobs == 5
    said = [job.id for job in next_jobs(world.queues.engine, "q", world.now_us, limit=9)]
    assert said == order(world, "q")
    world.store.close()


def test_jobs_behind_a_job_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claim_order, "_PAGE", 2)
    monkeypatch.setattr(claim_order, "AHEAD_MAX", 4)
    world = world_on("memory", tmp_path)
    told = [ahead_of(world, job_id) for job_id in [world.put() for _ in range(9)]]
    assert [(ahead.jobs, ahead.is_capped) for ahead in told[:2]] == [(0, False), (1, False)]
    assert told[8].is_capped


def test_what_cannot_be_claimed_stands_before_nothing(tmp_path: Path) -> None:
    world = world_on("memory", tmp_path)
    world.put(priority=5, tenant="paused")
    world.put(priority=5, task="paused")
    world.put(priority=5, limits=["full"])
    world.put(priority=5, queue="r")
    world.put(priority=5, after_s=60)
    job_id = world.put()
    assert ahead_of(world, job_id, "q", "r").by_queue == {"q": 3, "r": 1}
    world.hold("full")
    assert ahead_of(world, job_id, "q", "r").by_queue == {"q": 2, "r": 1}
    pauses.pause(world.queues.engine, "q", tenants=["paused"])
    pauses.pause(world.queues.engine, "q", tasks=["paused"])
    world.queues.engine.catalog.configure("r", is_paused=True)
    assert ahead_of(world, job_id, "q", "r").by_queue == {}
    world.queues.engine.catalog.configure("r", is_paused=False)
    world.queues.engine.catalog.configure("a", is_paused=True)
    assert ahead_of(world, job_id, "a", "q", "r").by_queue == {"r": 1}


def test_a_retry_in_an_older_lane_goes_first(tmp_path: Path) -> None:
    world = world_on("memory", tmp_path)
    world.queues.engine.catalog.configure("q", width_us=10 * SECOND_US)
    old = world.put()
    world.back(world.claim(old), after_s=15, errors=1)
    world.clock.advance(12)
    new = world.put()
    world.clock.advance(4)
    assert (ahead_of(world, old).jobs, ahead_of(world, new).jobs) == (
        (0, 1) if order(world, "q")[0] == old else (1, 0)
    )


@pytest.mark.sqlite
def test_so_it_is_on_sqlite(tmp_path: Path) -> None:
    world = world_on("sqlite", tmp_path)
    world.queues.engine.catalog.configure("q", aging_us=SECOND_US)
    job_ids = []
    for number in range(30):
        world.clock.advance(0.5)
        job_ids.append(world.put(priority=number % 4, queue="qr"[number % 3 == 0]))
    check_all(world, job_ids, "q", "r")
    world.store.close()
