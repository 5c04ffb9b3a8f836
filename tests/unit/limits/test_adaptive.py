"""Capacities by key (F13), and those that adapt to the answers of a server (F11)."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from dueline import Dueline
from dueline.core.attempt import Done, Ended, Ending, Failed, Snoozed
from dueline.core.clock import SECOND_US
from dueline.core.errors import BadInput
from dueline.core.job import Job
from dueline.limits import rate, semaphore
from dueline.limits.definitions import DEFINITIONS_AGE_US
from dueline.limits.rate import Rate
from dueline.limits.semaphore import Semaphore
from dueline.limits.usage import semaphores, usage_of, usages_of
from tests.harness.addresses import IN_MEMORY, WITH_ADDRESS, world_of
from tests.harness.costs import CostWorker, costing, put
from tests.harness.world import World

TIMEOUT = Failed("ReadTimeout", "", "", retry=True)


@pytest.fixture(params=[*IN_MEMORY, *WITH_ADDRESS])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    with world_of(request.param, tmp_path) as made:
        yield made
        made.store.close()


def define(world: World, name: str, setting: int | Semaphore | Rate) -> None:
    ids = world.queues.engine.ids
    if isinstance(setting, Rate):
        rate.define(world.store, name, setting, ids=ids)
    else:
        semaphore.define(world.store, name, setting, ids=ids)


def end(worker: CostWorker, jobs: Sequence[Job], ending: Ending, took_us: int = 1000) -> None:
    """End jobs of a worker, which took a while."""
    now_us = worker.world.now_us
    worker.permits.answered([Ended(job, ending, now_us - took_us, now_us) for job in jobs])
    worker.permits.settle(lambda: worker.held)
    worker.end(jobs)


def level(world: World, name: str = "api") -> int:
    return usage_of(world.queues.engine, name).capacity


def run(world: World, worker: CostWorker, ending: Ending, rounds: int, took_us: int = 1000) -> None:
    """Claim all that may run and end it, several times."""
    for _ in range(rounds):
        for _ in range(40):
            put(world, "api")
        world.clock.advance(us=SECOND_US)
        worker.claim()
        end(worker, worker.held, ending, took_us)


def test_a_key_has_its_own_capacity_and_others_the_default(world: World) -> None:
    define(world, "plan", 1)
    define(world, "plan:gold", 3)
    for key in ("gold", "free", "other"):
        for _ in range(4):
            put(world, f"plan:{key}")
    worker = CostWorker(world)
    worker.claim()
    held = [world.row(job.id).lane.tenant[1:] for job in worker.held]
    assert sorted(held) == ["plan:free", *["plan:gold"] * 3, "plan:other"]
    define(world, "plan:gold", 4)  # changed live
    world.clock.advance(us=DEFINITIONS_AGE_US + 1)
    assert len(worker.claim()) == 1
    semaphore.forget(world.store, "plan:gold")
    worker.end(worker.held)
    world.clock.advance(us=DEFINITIONS_AGE_US + 1)
    assert len(worker.claim()) == 2  # no gold job is left
    assert usage_of(world.queues.engine, "plan:gold").capacity == 1


def test_a_key_without_a_capacity_is_closed_where_the_default_is_0(world: World) -> None:
    define(world, "plan", 0)
    define(world, "plan:gold", 1)
    gold = put(world, "plan:gold")
    put(world, "plan:free")
    with pytest.raises(BadInput, match="a capacity of 0"):
        put(world, costing("plan:free", 2))
    assert [job.id for job in CostWorker(world).claim()] == [gold.id]


def test_a_key_has_its_own_rate(world: World) -> None:
    define(world, "llm", Rate(2, SECOND_US))
    define(world, "llm:acme", Rate(5, SECOND_US))
    for key in ("acme", "bolt"):
        for _ in range(6):
            put(world, f"llm:{key}")
    assert len(CostWorker(world).claim()) == 7


def test_usages_name_keys_with_capacities_apart(world: World) -> None:
    define(world, "plan", 1)
    define(world, "plan:gold", 3)
    for key in ("gold", "free"):
        put(world, f"plan:{key}")
    CostWorker(world).claim()
    engine = world.queues.engine
    assert semaphores(engine) == {"plan": Semaphore(1), "plan:gold": Semaphore(3)}
    assert [use.name for use in usages_of(engine, "plan")] == ["plan:free"]
    assert [use.name for use in usages_of(engine, "plan:gold")] == ["plan:gold"]


def test_an_adaptive_capacity_grows_while_all_of_it_is_used(world: World) -> None:
    # F11
    define(world, "api", Semaphore(2, 1, 4))
    worker = CostWorker(world)
    run(world, worker, Done(b""), 1)
    assert level(world) == 3
    run(world, worker, Done(b""), 5)
    assert level(world) == 4  # its bound
    other = CostWorker(world, "w2")  # for all workers
    world.clock.advance(us=SECOND_US)
    assert len(other.claim()) == 4


def test_an_adaptive_capacity_that_is_not_used_up_stays(world: World) -> None:
    define(world, "api", Semaphore(4, 1, 9))
    worker = CostWorker(world)
    for _ in range(20):
        put(world, "api")
        world.clock.advance(us=SECOND_US)
        worker.claim()
        end(worker, worker.held, Done(b""))
    assert level(world) == 4


@pytest.mark.slow
@pytest.mark.parametrize("ending", [Snoozed(1, throttles=True), TIMEOUT])
def test_an_adaptive_capacity_shrinks_once_for_all_that_ran(world: World, ending: Ending) -> None:
    define(world, "api", Semaphore(9, 2, 20))
    worker, other = CostWorker(world, slots=5), CostWorker(world, "w2")
    for _ in range(30):
        put(world, "api")
    worker.claim()
    other.claim()
    world.clock.advance(us=SECOND_US)
    for each in (worker, other):
        end(each, each.held, ending)
    assert level(world) == 6
    run(world, worker, ending, 9)
    assert level(world) == 2  # its bound


def test_slow_jobs_lower_an_adaptive_capacity(world: World) -> None:
    define(world, "api", Semaphore(6, 1, 9, latency_us=SECOND_US))
    worker = CostWorker(world)
    run(world, worker, Done(b""), 1, took_us=SECOND_US)
    assert level(world) == 7
    run(world, worker, Done(b""), 1, took_us=SECOND_US + 1)
    assert level(world) == 4
    run(world, worker, Failed("ValueError", "", "", retry=True), 3)
    assert level(world) == 4  # says nothing about the server


def test_values_are_checked(tmp_path: Path) -> None:
    app = Dueline(f"sqlite:///{tmp_path}/a.db")
    for wrong in ((0, 5), (3, 2), (1, 1_000_000_001)):
        with pytest.raises(BadInput):
            app.semaphore("api", capacity=2, adaptive=wrong)
    for odd in ((1, 2, 3), (1,), 5, "1:5"):
        with pytest.raises(BadInput, match="two bounds"):
            app.semaphore("api", capacity=2, adaptive=odd)  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="between the bounds"):
        app.semaphore("api", capacity=9, adaptive=(1, 5))
    with pytest.raises(BadInput, match="adaptive"):
        app.semaphore("api", capacity=9, latency=1)
    with pytest.raises(BadInput):
        app.semaphore("plan", capacity=1, keys={"": 2})
    app.semaphore("plan", capacity=1, keys={"gold": 2})
    app.rate("llm", 5, per=1)
    assert app.engine.store.scope
    with pytest.raises(BadInput, match="is a rate"):
        app.semaphore("llm:acme", capacity=5)
    with pytest.raises(BadInput, match="is a semaphore"):
        app.rate("plan:gold", 5, per=1)
    app.close()
