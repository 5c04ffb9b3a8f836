"""How many jobs are where, and what is wrong with a store."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from dueline.admin.health import Report, examine
from dueline.coordination.worker_registry import present
from dueline.core.attempt import Outcome
from dueline.core.clock import SECOND_US, StoreTime
from dueline.core.codec import JSON, encode
from dueline.core.store import Move
from dueline.jobs.completion import finish_of
from dueline.jobs.counts import Counts, count
from dueline.jobs.queue import EnqueueRequest
from tests.harness.swaps import swap
from tests.harness.world import KINDS, World, world_on


@pytest.fixture(params=KINDS)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    made = world_on(request.param, tmp_path)
    yield made
    made.store.close()


def counts(world: World, queue: str = "q", *, most: int = 1000) -> Counts:
    """Count a queue."""
    return count(world.queues.engine, queue, present(world.store), most=most)


def test_jobs_are_counted_by_state(world: World) -> None:
    world.put(queue="other")
    world.die(world.put())
    world.claim(world.put(), start=True)
    world.put(after_s=60)
    failed = world.put()
    world.back(world.claim(failed), after_s=5, errors=1)
    oldest_us = world.now_us
    world.put()
    world.clock.advance(1)
    world.put(tenant="acme", priority=4)
    world.live()
    assert counts(world) == Counts("q", 2, 1, 1, 1, 0, 1, oldest_us, 1, is_capped=False)


def test_a_job_that_has_ended_is_not_counted(world: World) -> None:
    job = world.claim(world.put())
    end = finish_of(
        job, Outcome("done", world.now_us), None, world.queues.engine.catalog.settings("q")
    )
    token = world.queues.engine.ids.token()
    world.store.settle([Move(job, job.at_us, token, 0, 0, 0, outcome=encode(end))])
    assert counts(world) == Counts("q", 0, 0, 0, 0, 0, 0, None, 0, is_capped=False)


def test_a_count_that_stops_early_says_so(world: World) -> None:
    for _ in range(5):
        world.put()
    assert counts(world, most=3).ready == 3
    assert counts(world, most=3).is_capped
    assert not counts(world).is_capped


def verdicts(report: Report) -> dict[str, str]:
    """Give each check's verdict."""
    return {check.name: check.verdict for check in report.checks}


def test_a_healthy_store_is_good_all_over(world: World) -> None:
    world.put()
    world.live()
    report = examine(world.queues.engine)
    assert set(verdicts(report).values()) == {"good"}
    assert not report.is_bad()
    assert report.store["store"] in ("memory", "sqlite")
    assert [presence.worker for presence in report.workers] == ["w1"]


def test_a_queue_that_nobody_serves_is_a_warning(world: World) -> None:
    world.put()
    world.put(queue="later", after_s=60)
    world.live(queues=["later"])
    report = examine(world.queues.engine)
    assert verdicts(report)["queue q"] == "warning"
    assert "queue later" not in verdicts(report)
    assert not report.is_bad()


@pytest.mark.parametrize(("skew_s", "verdict"), [(30, "bad"), (-30, "bad"), (29, "good")])
def test_a_worker_whose_clock_is_off_is_bad(world: World, skew_s: int, verdict: str) -> None:
    world.live(skew_us=skew_s * SECOND_US)
    report = examine(world.queues.engine)
    assert verdicts(report)["clock of worker w1"] == verdict
    assert report.is_bad() == (verdict == "bad")


def test_this_machine_s_clock_is_compared_with_the_store_s(world: World) -> None:
    now_us = world.now_us
    swap(world.queues, time=StoreTime(lambda: now_us, world.clock))
    world.clock.jump(45)
    bad = next(check for check in examine(world.queues.engine).checks if check.verdict == "bad")
    assert (bad.name, bad.finding) == ("clock of this machine", "45s ahead of the store's")
    world.clock.jump(-50)
    finding = next(
        check.finding for check in examine(world.queues.engine).checks if "clock" in check.name
    )
    assert finding == "5s behind the store's"


@pytest.mark.parametrize(("integrity", "verdict"), [("ok", "good"), ("row 7 is missing", "bad")])
def test_damage_is_bad(
    world: World, monkeypatch: pytest.MonkeyPatch, integrity: str, verdict: str
) -> None:
    def describe() -> Mapping[str, str]:
        return {"store": "x", "schema": "1", "integrity": integrity}

    monkeypatch.setattr(world.store, "describe", describe)
    assert verdicts(examine(world.queues.engine))["integrity"] == verdict


@pytest.mark.parametrize("many", [1, 9, 10, 11, 100, 2047, 2049, 3000])
def test_jobs_beyond_the_maximum_are_counted(world: World, many: int) -> None:
    engine = world.queues.engine
    request = EnqueueRequest("q", "task", JSON, [b"[]"] * many)
    world.queues.enqueue(request)
    world.queues.enqueue(request._replace(due_us=world.now_us + 3600 * SECOND_US, tenant="t"))
    counts = count(engine, "q", (), most=10, whole=True)
    assert (counts.living(), counts.is_capped) == (2 * many, False)
    assert count(engine, "q", ()).ready == many == counts.ready
