"""Jobs found by what they are like (V1)."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dueline.admin.ended_search import search_ended
from dueline.admin.search import JobFilter, attempts_of, search
from dueline.core.attempt import Outcome
from dueline.core.errors import BadInput, NotFound
from dueline.core.lane import Lane
from dueline.core.store import JobPage
from tests.harness.world import KINDS, World, world_on


@pytest.fixture(params=KINDS)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    made = world_on(request.param, tmp_path)
    yield made
    made.store.close()


def test_waiting_jobs_come_by_time_over_all_queues_and_lanes(world: World) -> None:
    later = world.put(queue="b", after_s=200_000)
    first = world.put(queue="a", priority=-5)
    world.clock.advance(1)
    second = world.put(queue="b", priority=5, tenant="acme")
    page = search(world.queues.engine, JobFilter(), limit=10)
    assert [job.id for job in page.jobs] == [first, second, later]
    assert (page.more, page.is_capped) == (False, False)


def test_jobs_are_found_by_state_queue_task_and_tenant(world: World) -> None:
    ready = world.put()
    scheduled = world.put(after_s=60)
    other = world.put(queue="b", task="u", tenant="acme")
    running = world.put(queue="c")
    world.claim(running, start=True)
    dead = world.put(queue="d")
    world.die(dead)

    def like(**wanted: str) -> list[bytes]:
        likeness = replace(JobFilter(), **wanted)  # type: ignore[arg-type]  # none of them is a number
        return [job.id for job in search(world.queues.engine, likeness, limit=10).jobs]

    assert like(state="ready", queue="q") == [ready]
    assert like(state="scheduled") == [scheduled]
    assert like(state="running") == [running]
    assert like(state="retrying") == []
    assert like(state="dead") == [dead]
    assert like(queue="b") == like(task="u") == like(tenant="acme") == [other]
    assert like(queue="b", task="t") == []


def test_a_queue_that_is_not_there_is_said_so_and_not_made(world: World) -> None:
    with pytest.raises(NotFound, match=r"There is no queue b\. There are no queues yet"):
        search(world.queues.engine, JobFilter(queue="b"), limit=1)
    world.put()
    with pytest.raises(NotFound, match=r"There is no queue b\. Queues: q\."):
        search_ended(world.queues.engine, JobFilter(state="done", queue="b"), limit=1)
    with pytest.raises(BadInput):
        search(world.queues.engine, JobFilter(queue="No!"), limit=1)
    assert world.queues.engine.catalog.names() == ["q"]


def test_a_page_of_many_lanes_reads_few_rows_of_each(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    put = [world.put(priority=number % 20) for number in range(600)]
    read: list[int] = []
    scan = world.store.scan

    def counted(lane: Lane, **bounds: Any) -> JobPage:  # noqa: ANN401
        page = scan(lane, **bounds)
        read.append(len(page.jobs))
        return page

    monkeypatch.setattr(world.store, "scan", counted)
    page = search(world.queues.engine, JobFilter(), limit=50)
    assert [job.id for job in page.jobs] == put[:50]
    assert sum(read) < 300


def test_a_search_says_that_there_are_more(world: World) -> None:
    jobs = [world.put() for _ in range(5)]
    page = search(world.queues.engine, JobFilter(), limit=3)
    assert [job.id for job in page.jobs] == jobs[:3]
    assert page.more
    assert not search(world.queues.engine, JobFilter(), limit=5).more


def test_a_search_reads_only_so_much(world: World) -> None:
    for _ in range(30):
        world.put()
    page = search(world.queues.engine, JobFilter(task="u"), limit=3, most=12)
    assert page.jobs == []
    assert page.is_capped


def test_ended_jobs_come_from_history_the_latest_first(world: World) -> None:
    old, new, lost, elsewhere = (world.put(task=task) for task in ("t", "t", "t", "u"))
    for job_id, state in ((old, "done"), (lost, "lost"), (new, "done"), (elsewhere, "done")):
        world.end(world.claim(job_id), Outcome(state, world.now_us))  # type: ignore[arg-type]
        world.clock.advance(3600)
    like = JobFilter(state="done", task="t")
    page = search_ended(world.queues.engine, like, limit=10)
    assert [attempt.job for attempt in page.attempts] == [new.hex(), old.hex()]
    assert (page.more, page.is_capped) == (False, False)
    page = search_ended(world.queues.engine, like, limit=1)
    assert [attempt.job for attempt in page.attempts] == [new.hex()]
    assert page.more
    assert (
        search_ended(world.queues.engine, JobFilter(state="done", tenant="x"), limit=1).attempts
        == []
    )
    assert search_ended(world.queues.engine, like, limit=1, most=1).is_capped


def test_the_attempts_of_a_job_are_found_without_its_row(world: World) -> None:
    other, job_id = world.put(), world.put()
    for each in (other, job_id):
        world.end(world.claim(each), Outcome("done", world.now_us))
    for queue in ("q", None):
        page = attempts_of(world.queues.engine, job_id, queue, limit=5)
        assert [attempt.job for attempt in page.attempts] == [job_id.hex()]
    assert attempts_of(world.queues.engine, job_id, None, limit=5, most=1).is_capped
    assert attempts_of(world.queues.engine, job_id, None, limit=0).more


def test_retrying_all_leaves_those_that_changed(world: World) -> None:
    first, second = world.put(), world.put()
    world.die(first)
    world.die(second)
    rows = search(world.queues.engine, JobFilter(state="dead"), limit=10).jobs
    world.queues.retry(first)
    assert world.queues.retry_all(rows) == 1
    assert [world.queues.find(each).status for each in (first, second)] == ["ready", "ready"]
    assert world.row(second).errors == 0
