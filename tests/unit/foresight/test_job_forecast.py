"""Forecasts of the jobs of a store (V10)."""

import random
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import pytest

from dueline.coordination import notes
from dueline.coordination.worker_registry import live_workers
from dueline.core.attempt import Outcome
from dueline.core.clock import SECOND_US
from dueline.core.codec import encode
from dueline.core.job import JobId
from dueline.foresight import checks
from dueline.foresight.forecast import CHECKED_MIN, Error, error_of
from dueline.foresight.job_forecast import KIND, Checks, checks_of, estimate_of, explain
from dueline.foresight.run_times import run_times
from dueline.limits import rate, semaphore
from dueline.limits.rate import Rate
from tests.harness.run_times import measured
from tests.harness.world import EVERY_KIND, World, world_on


@pytest.fixture(params=EVERY_KIND)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    made = world_on(request.param, tmp_path)
    yield made
    made.store.close()


def checked(world: World, *errors: float) -> None:
    """Write the errors of earlier forecasts."""
    known = Checks((), {"ready": [Error(2 * SECOND_US, one) for one in errors]})
    world.store.commit(notes.PARTITION, (notes.put(KIND, "q", encode(known), b"v"),))


def waits_s(world: World, job_id: JobId) -> float | str:
    """Estimate how long a job waits after its due time."""
    engine = world.queues.engine
    found = estimate_of(
        engine, world.row(job_id), world.now_us,
        workers=live_workers(engine), times=run_times(engine.store),
    )  # fmt: skip
    return found if isinstance(found, str) else round(found.wait_us / SECOND_US, 1)


def test_the_work_before_a_job_is_shared_by_all_slots(world: World) -> None:
    world.live(held=4)
    measured(world)
    ids = [world.put() for _ in range(9)]
    assert waits_s(world, ids[-1]) == pytest.approx((8 + 1) / 4, rel=0.13)
    world.live("w2", held=4)
    assert waits_s(world, ids[-1]) == pytest.approx((8 + 1) / 8, rel=0.13)


def test_a_job_of_a_free_worker_does_not_wait(world: World) -> None:
    world.live()
    measured(world)
    assert waits_s(world, world.put()) == 0


def test_jobs_of_a_burst_wait_for_each_other(world: World) -> None:
    world.live()
    measured(world)
    ids = [world.put(after_s=30) for _ in range(40)]
    assert waits_s(world, ids[-1]) == pytest.approx(36 / 4, rel=0.2)
    assert waits_s(world, ids[0]) == 0


def test_urgent_jobs_come_before(world: World) -> None:
    world.live(held=4)
    measured(world)
    last = world.put()
    for _ in range(8):
        world.put(priority=1)
    assert waits_s(world, last) == pytest.approx(9 / 4, rel=0.13)


def test_jobs_of_a_limit_wait_for_its_permits(world: World) -> None:
    world.live()
    measured(world)
    engine = world.queues.engine
    semaphore.define(engine.store, "api", 1, ids=engine.ids)
    world.hold("api")
    ids = [world.put(limits=["api"]) for _ in range(5)]
    assert waits_s(world, ids[-1]) == pytest.approx(5, rel=0.13)


def test_jobs_of_a_rate_wait_for_its_turns(world: World) -> None:
    world.live()
    measured(world)
    engine = world.queues.engine
    rate.define(engine.store, "api", Rate(1, 10 * SECOND_US), ids=engine.ids)
    ids = [world.put(limits=["api"]) for _ in range(5)]
    assert waits_s(world, ids[-1]) == pytest.approx(40, rel=0.01)


def test_without_run_times_there_is_no_forecast(world: World) -> None:
    world.live(held=4)
    job_id = world.put()
    found = explain(world.queues, job_id)
    assert found.facts["no_forecast"] == "fewer than 20 run times of the task t are known"
    assert found.sentence.endswith(f" There is no forecast: {found.facts['no_forecast']}.")
    measured(world, number=19)
    assert "fewer than 20" in str(explain(world.queues, job_id))


def test_without_checked_forecasts_there_is_none(world: World) -> None:
    world.live(held=4)
    measured(world)
    checked(world, *[1.0] * (CHECKED_MIN - 1))
    found = explain(world.queues, world.put())
    assert found.facts["no_forecast"] == (
        "too few forecasts of ready jobs of the queue q were checked so far: 19 of 20"
    )


def test_a_forecast_has_the_errors_of_earlier_ones(world: World) -> None:
    world.live(held=4)
    measured(world, run_s=4)
    checked(world, *(0.5 + 0.05 * number for number in range(20)))
    for _ in range(7):
        world.put()
    found = explain(world.queues, world.put())
    start_s = world.now_us / SECOND_US
    expected, first, last = (
        int(found.facts[name]) / SECOND_US - start_s
        for name in ("expected_us", "earliest_us", "latest_us")
    )
    assert (first, expected, last) == pytest.approx((8 * 0.555, 8 * 0.975, 8 * 1.395), rel=0.13)
    assert "Expected start 00:00:" in str(found)
    assert str(found).endswith(" (80 %).")


def test_a_paused_job_has_no_forecast(world: World) -> None:
    world.live()
    measured(world)
    world.queues.engine.catalog.configure("q", is_paused=True)
    found = explain(world.queues, world.put())
    assert found.reason == "paused"
    assert not {"no_forecast", "expected_us"} & set(found.facts)


def test_estimates_are_checked_when_their_jobs_have_started(world: World) -> None:
    world.live(held=4)
    measured(world)
    chance = random.Random(2).random
    ids = [world.put() for _ in range(8)]
    for _ in range(9):
        result = checks.check_forecasts(world.queues, None, chance)
        world.store.commit(notes.PARTITION, result.puts)
    engine = world.queues.engine
    before = checks_of(engine, "q")
    assert before.open
    assert not before.errors
    world.clock.advance(4)
    jobs = [world.claim(job_id) for job_id in ids]
    world.clock.advance(1)
    for job in jobs:
        world.end(job, Outcome("done", world.now_us))
    result = checks.check_forecasts(world.queues, None, chance)
    world.store.commit(notes.PARTITION, result.puts)
    after = checks_of(engine, "q")
    assert not after.open
    waited_us = 4 * SECOND_US
    expected = [Error(one.wait_us, error_of(one.wait_us, waited_us)) for one in before.open]
    assert sorted(chain.from_iterable(after.errors.values())) == sorted(expected)
