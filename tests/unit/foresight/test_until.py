"""What would start a job by a given time."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from dueline.core.clock import SECOND_US
from dueline.core.job import JobId
from dueline.foresight.job_forecast import explain
from dueline.foresight.until import with_until
from dueline.jobs import pauses
from dueline.jobs.explanation import Until
from dueline.limits import semaphore
from dueline.limits.suspension import suspend
from tests.harness.run_times import measured
from tests.harness.world import EVERY_KIND, World, world_on


@pytest.fixture(params=EVERY_KIND)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    made = world_on(request.param, tmp_path)
    yield made
    made.store.close()


def until(world: World, job_id: JobId, seconds: float) -> Until:
    """Ask what would start a job within some seconds."""
    engine = world.queues.engine
    until_us = world.now_us + round(seconds * SECOND_US)
    found = with_until(engine, job_id, explain(world.queues, job_id), until_us).until
    assert found is not None
    return found


def test_a_job_of_a_free_worker_starts_by_itself(world: World) -> None:
    # V4
    world.live()
    measured(world)
    found = until(world, world.put(), 600)
    assert (found.starts, found.commands) == ("yes", ())
    assert "It starts by itself before 2026-01-01T00:10:00Z (in 10m)" in found.sentence


def test_a_pause_and_a_missing_worker_are_changed_by_commands(world: World) -> None:
    job_id = world.put(after_s=60)
    pauses.pause(world.queues.engine, "q")
    found = until(world, job_id, 600)
    assert found.starts == "no"
    assert found.commands == ("dueline queues resume q", "dueline worker -q q")
    assert found.sentence == (
        "It does not start by 2026-01-01T00:10:00Z (in 10m) by itself. To start it by then: "
        "(1) `dueline queues resume q`; (2) `dueline worker -q q`."
    )


def test_a_job_that_is_due_later_is_brought_forward(world: World) -> None:
    world.live()
    measured(world)
    job_id = world.put(after_s=3600)
    assert until(world, job_id, 600).commands == (f"dueline jobs retry {job_id.hex()}",)
    assert until(world, job_id, 4000).starts == "yes"


def test_more_workers_shorten_the_wait(world: World) -> None:
    world.live(held=4)
    measured(world, run_s=60)
    for _ in range(40):
        world.put()
    job_id = world.put()
    found = until(world, job_id, 200)
    assert found.starts == "no"
    assert found.commands == ("dueline worker -q q",)
    assert "more workers would start it" in found.sentence
    assert until(world, job_id, 4000).starts == "yes"


def test_more_permits_shorten_the_wait(world: World) -> None:
    world.live()
    measured(world, run_s=60)
    engine = world.queues.engine
    semaphore.define(engine.store, "api", 1, ids=engine.ids)
    world.hold("api")
    job_id = [world.put(limits=["api"]) for _ in range(5)][-1]
    found = until(world, job_id, 200)
    assert found.starts == "no"
    assert found.commands[0].startswith("dueline limits set api ")


def test_a_limit_that_a_handler_closed_is_not_opened_sooner(world: World) -> None:
    world.live()
    job_id = world.put(limits=["api"])
    suspend(world.queues.engine, ["api"], world.now_us + 3600 * SECOND_US)
    found = until(world, job_id, 600)
    assert (found.starts, found.commands) == ("no", ())
    assert "no command changes that its limit api is closed until" in found.sentence


def test_without_run_times_it_is_not_known(world: World) -> None:
    world.live()
    found = until(world, world.put(), 600)
    assert found.starts == "unknown"
    assert "fewer than 20 run times" in found.sentence


def test_nothing_starts_a_job_that_has_ended(world: World) -> None:
    job_id = world.put()
    world.queues.cancel(job_id)
    assert until(world, job_id, 600).sentence == "No change starts it."
