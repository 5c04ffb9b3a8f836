"""Jobs that take several units of their limits (F12), on every store."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from dueline.core.clock import SECOND_US
from dueline.core.errors import BadInput
from dueline.core.job import Job
from dueline.core.lane import limits_of
from dueline.core.limit_costs import limits_with_costs
from dueline.core.store import Lease, Want
from dueline.jobs.explain import explain
from dueline.limits import rate, semaphore
from dueline.limits.definitions import DEFINITIONS_AGE_US
from dueline.limits.lines import PLACE_US
from dueline.limits.rate import Rate
from tests.harness.addresses import IN_MEMORY, WITH_ADDRESS, world_of
from tests.harness.costs import CostWorker, costing, put, units_in
from tests.harness.world import EVERY_KIND, World, world_on

MINUTE_US = 60 * SECOND_US


@pytest.fixture(params=[*IN_MEMORY, *WITH_ADDRESS])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    with world_of(request.param, tmp_path) as made:
        yield made
        made.store.close()


@pytest.fixture(params=EVERY_KIND)
def near(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    world = world_on(request.param, tmp_path)
    yield world
    world.store.close()


def define(world: World, name: str, most: int | Rate) -> None:
    ids = world.queues.engine.ids
    if isinstance(most, Rate):
        rate.define(world.store, name, most, ids=ids)
    else:
        semaphore.define(world.store, name, most, ids=ids)


def drained(world: World, workers: list[CostWorker], jobs: int, *, step_us: int) -> list[Job]:
    """Let workers run jobs, each for one step; return the jobs in the order of their starts."""
    order: list[Job] = []
    for _ in range(500):
        for worker in workers:
            order += worker.claim()
        held = [job for worker in workers for job in worker.held]
        for name in {name for job in held for name in limits_of(job.lane)}:
            known = semaphore.settings(world.store).get(name)
            assert known is None or units_in(held, name) <= known.capacity
        world.clock.advance(us=step_us)
        for worker in workers:
            worker.end(worker.held[:1])
        if len(order) == jobs and not any(worker.held for worker in workers):
            return order
    raise AssertionError(f"{len(order)} of {jobs} started")


@pytest.mark.slow
def test_jobs_never_take_more_than_a_capacity_and_all_run(world: World) -> None:
    # F12, rule N1
    define(world, "gpu", 5)
    chance = random.Random(7)
    for number in range(40):
        put(world, costing("gpu", chance.choice((1, 1, 2, 3, 5))), tenant="ab"[number % 2])
    workers = [CostWorker(world, "w1"), CostWorker(world, "w2", slots=3)]
    drained(world, workers, 40, step_us=SECOND_US // 4)
    world.clock.advance(us=PLACE_US + SECOND_US)
    for worker in workers:
        worker.end([])
    assert not semaphore.in_use(world.store, "gpu")  # nothing is held or waited for


def test_a_job_of_a_large_cost_is_not_overtaken_for_ever(world: World) -> None:
    """Rule N9: what it waits for stays reserved, also from other workers and tenants."""
    define(world, "gpu", 5)
    first = [put(world, costing("gpu", 1), tenant="small") for _ in range(5)]
    workers = [CostWorker(world, "w1", slots=4), CostWorker(world, "w2", slots=4)]
    for worker in workers:
        worker.claim()
    large = put(world, costing("gpu", 5), tenant="large")
    started: list[Job] = []
    for _ in range(80):  # small jobs never run out
        put(world, costing("gpu", 1), tenant="small")
        world.clock.advance(us=SECOND_US // 4)
        for worker in workers:
            worker.end(worker.held[:1])
            started += worker.claim()
        if large.id in {job.id for job in started}:
            break
    else:
        raise AssertionError("the large job did not start")
    assert len(started) <= len(first) + 4


def test_jobs_that_are_refused_for_a_large_one_do_not_keep_it_from_asking(near: World) -> None:
    """Lanes that ask first, in vain, postpone others with the same limit, but not the large job."""
    define(near, "gpu", 5)
    worker = CostWorker(near)
    tenants = [f"t{number}" for number in range(12)]
    for tenant in tenants:
        put(near, costing("gpu", 1), tenant=tenant)
    worker.claim()
    large = put(near, costing("gpu", 5), tenant="large")
    for step in range(200):
        for tenant in tenants:  # small jobs never run out
            put(near, costing("gpu", 1), tenant=tenant)
        near.clock.advance(us=SECOND_US // 8)
        worker.end(worker.held[:1])
        if large.id in {job.id for job in worker.claim()}:
            assert step < 20
            return
    raise AssertionError("the large job did not start")


@pytest.mark.slow
def test_tokens_that_a_large_job_waits_for_are_reserved_in_all_workers(world: World) -> None:
    define(world, "llm", Rate(100, MINUTE_US))
    workers = [CostWorker(world, "w1"), CostWorker(world, "w2")]
    put(world, costing("llm", 60), tenant="a")
    assert len(workers[0].claim()) == 1
    large = put(world, costing("llm", 80), tenant="a")
    assert not workers[0].claim()  # 40 are left
    for _ in range(4):
        put(world, costing("llm", 30), tenant="b")
    for second in range(70):
        world.clock.advance(us=SECOND_US)
        for worker in reversed(workers):
            if taken := worker.claim():
                assert taken[0].id == large.id
                assert second > 55
                return
    raise AssertionError("the large job did not start")


@pytest.mark.parametrize("most", [5, Rate(5, SECOND_US)])
def test_a_worker_gives_up_the_place_of_a_job_that_another_one_took(
    world: World, most: int | Rate
) -> None:
    """Otherwise what the job waited for stays reserved, and no other job can have it."""
    define(world, "gpu", most)
    workers = [CostWorker(world, "w1"), CostWorker(world, "w2")]
    put(world, costing("gpu", 5), tenant="first")
    assert len(workers[0].claim()) == 1
    put(world, costing("gpu", 5), tenant="large")
    assert not workers[0].claim()
    assert not workers[1].claim()  # both keep a place for it
    workers[0].end(workers[0].held)

    def steps_until_one_claims() -> int:
        """Let workers claim four times a second until one has a job; it ends at once."""
        for step in range(40):
            world.clock.advance(us=SECOND_US // 4)
            for worker in workers[::-1]:
                if taken := worker.claim():
                    worker.end(taken)
                    return step
        raise AssertionError("no job started")

    steps_until_one_claims()
    put(world, costing("gpu", 1), tenant="small")
    assert steps_until_one_claims() <= 4


def test_more_urgent_jobs_come_before_a_large_one(world: World) -> None:
    define(world, "gpu", 5)
    workers = [CostWorker(world, "w1"), CostWorker(world, "w2")]
    put(world, costing("gpu", 2))
    running = workers[0].claim()
    put(world, costing("gpu", 5))
    assert not workers[0].claim()
    urgent = put(world, costing("gpu", 3), priority=1)
    world.clock.advance(us=SECOND_US)
    assert [job.id for job in workers[1].claim()] == [urgent.id]
    assert len(running) == 1


def test_a_claim_that_brings_other_jobs_than_were_read_requeues_those_without_permits(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another worker claims the first jobs between the read and the claim."""
    define(world, "gpu", 3)
    small = [put(world, costing("gpu", 1)) for _ in range(3)]
    world.clock.advance(us=1000)
    large = put(world, costing("gpu", 3))
    worker, scan = CostWorker(world), world.store.scan

    def scan_and_lose(*args: object, **named: object) -> object:
        page = scan(*args, **named)  # type: ignore[arg-type]
        monkeypatch.undo()
        lease = Lease(world.now_us, SECOND_US, "other", world.queues.engine.ids.token())
        world.store.claim([Want(small[0].lane, 2)], limit=2, lease=lease)
        return page

    monkeypatch.setattr(world.store, "scan", scan_and_lose)
    assert [job.id for job in worker.claim()] == [small[2].id]
    assert not world.row(large.id).is_claimed()
    assert world.row(large.id).errors == world.row(large.id).crashes == 0
    usage = semaphore.in_use(world.store, "gpu")["gpu"]
    assert usage.held("w1", world.now_us) == 1
    worker.end(worker.held)
    world.clock.advance(us=2 * SECOND_US)
    assert [job.id for job in worker.claim()] == [large.id]  # in its place before it was claimed


def test_a_job_takes_of_several_windows_at_once(world: World) -> None:
    define(world, "requests", Rate(3, MINUTE_US))
    define(world, "tokens", Rate(100, MINUTE_US))
    for units in (60, 30, 30, 1):
        put(world, "requests", costing("tokens", units))
    worker = CostWorker(world)
    taken = worker.claim()
    assert units_in(taken, "tokens") == 90  # the third one lacks tokens
    worker.end(taken)
    world.clock.advance(us=MINUTE_US + SECOND_US)
    assert units_in(worker.claim(), "tokens") == 31


@pytest.mark.parametrize(("spent", "second"), [(20, 3), (60, 2), (95, 0)])
def test_what_a_job_really_took_corrects_the_rate(world: World, spent: int, second: int) -> None:
    define(world, "tokens", Rate(100, MINUTE_US))
    put(world, costing("tokens", 60))
    worker = CostWorker(world)
    (running,) = worker.claim()
    for _ in range(3):
        put(world, costing("tokens", 20))
    worker.permits.spent({running.claim(): [("tokens", 70)]})
    worker.permits.spent({running.claim(): [("tokens", spent)]})  # the last one counts
    assert len(worker.claim()) == second


def test_a_debt_delays_later_jobs(world: World) -> None:
    define(world, "tokens", Rate(100, MINUTE_US))
    put(world, costing("tokens", 60))
    worker = CostWorker(world)
    (running,) = worker.claim()
    world.clock.advance(us=30 * SECOND_US)
    worker.permits.spent({running.claim(): [("tokens", 150)]})
    worker.end([running])
    put(world, costing("tokens", 30))
    world.clock.advance(us=32 * SECOND_US)  # the 60 of the start count no more, the 90 do
    assert not worker.claim()
    world.clock.advance(us=30 * SECOND_US)
    assert len(worker.claim()) == 1


def test_a_cost_above_the_capacity_is_refused_at_the_call(near: World) -> None:
    define(near, "gpu", 4)
    define(near, "tokens", Rate(100, MINUTE_US))
    define(near, "bucket", Rate(100, MINUTE_US, burst=10))
    for name, most in (("gpu", 4), ("tokens", 100), ("bucket", 10), ("named", 1)):
        put(near, costing(name, most))
        with pytest.raises(BadInput, match=f"cannot take {most + 1} of the limit {name}"):
            put(near, costing(name, most + 1))


@pytest.mark.parametrize("most", [4, Rate(100, MINUTE_US)])
def test_a_job_whose_cost_is_above_a_lowered_capacity_runs_alone(
    near: World, most: int | Rate
) -> None:
    units = most if isinstance(most, int) else most.count
    define(near, "gpu", most)
    large, other = put(near, costing("gpu", units)), put(near, costing("gpu", 1))
    half = units // 2 if isinstance(most, int) else Rate(units // 2, MINUTE_US)
    define(near, "gpu", half)
    near.clock.advance(us=DEFINITIONS_AGE_US + 1)
    near.live("w1")
    near.live("w2")
    blocker, worker = CostWorker(near, "w2"), CostWorker(near)
    near.clock.advance(us=1)
    urgent = put(near, costing("gpu", 1), priority=1)
    assert [job.id for job in blocker.claim()] == [urgent.id]
    assert not worker.claim()
    assert f"its cost {units} is above" in explain(near.queues, large.id).sentence
    assert "runs alone" in explain(near.queues, large.id).sentence
    blocker.end(blocker.held)
    near.clock.advance(us=MINUTE_US + 2 * SECOND_US)
    assert [job.id for job in worker.claim()] == [large.id]
    assert worker.permits.keep(worker.held) == []
    assert not worker.claim()
    assert not near.row(other.id).is_claimed()


def test_explain_says_what_a_job_takes(near: World) -> None:
    define(near, "gpu", 5)
    define(near, "tokens", Rate(100, MINUTE_US))
    near.live("w1")
    worker = CostWorker(near)
    put(near, costing("gpu", 3), costing("tokens", 70))
    worker.claim()
    few = put(near, costing("gpu", 3))
    late = put(near, costing("tokens", 40))
    worker.claim()
    said = explain(near.queues, few.id).sentence
    assert "its limit gpu has 2 free permits (capacity 5) and it takes 3" in said
    said = explain(near.queues, late.id).sentence
    assert "its limit tokens (100 in 1m) has 30 left and it takes 40" in said


def test_a_released_job_keeps_its_costs(near: World) -> None:
    define(near, "gpu", 5)
    job = put(near, costing("gpu", 3), "gpu:a")
    (claimed,) = CostWorker(near).claim()
    near.back(claimed, after_s=1)
    assert set(limits_with_costs(near.row(job.id))) == {costing("gpu", 3), "gpu:a"}
