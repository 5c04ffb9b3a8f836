"""Dead-letter jobs, the latest first (O1)."""

from pathlib import Path

import pytest

from dueline.admin.job_lists import list_jobs
from dueline.admin.latest import search_latest
from dueline.admin.search import JobFilter
from dueline.core.errors import NotFound
from tests.harness.world import World, world_on

DEAD = JobFilter("dead")


@pytest.fixture(params=["memory", "sqlite"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    return world_on(request.param, tmp_path)


def deaths(world: World, gaps_s: list[int], queue: str = "q") -> list[str]:
    """Let a job of one of several lanes die after each gap; return their ids, the last first."""
    ids = []
    for number, gap_s in enumerate(gaps_s):
        world.clock.advance(gap_s)
        job_id = world.put(queue=queue, priority=number % 2, tenant="ab"[number % 3 == 0])
        world.die(job_id)
        ids.append(job_id.hex())
    return ids[::-1]


def listed(world: World, like: JobFilter = DEAD, limit: int = 3, most: int = 20_000) -> list[str]:
    """Read all pages."""
    job_ids: list[str] = []
    after = None
    while True:
        page = list_jobs(world.queues.engine, like, limit=limit, most=most, after=after)
        job_ids += [job.id for job in page.jobs]
        if page.next is None:
            return job_ids
        assert page.next != after
        after = page.next


def test_the_latest_come_first_on_every_page(world: World) -> None:
    gaps = [1, 0, 5, 3600, 0, 0, 90_000, 7, 200_000, 1]
    ids = deaths(world, gaps)
    assert set(listed(world)) == set(ids)
    for limit in (1, 3, 4, 100):
        job_ids = listed(world, limit=limit)
        assert len(job_ids) == len(ids)
        times = [world.queues.find(bytes.fromhex(job)).row.at_us for job in job_ids]  # type: ignore[union-attr, arg-type]
        assert times == sorted(times, reverse=True)


def test_only_matching_jobs_are_listed(world: World) -> None:
    mine, _ = deaths(world, [1, 5, 90_000]), deaths(world, [1], queue="other")
    assert listed(world, JobFilter("dead", queue="q")) == mine
    assert set(listed(world, JobFilter("dead", tenant="b"))) < set(mine + _)
    with pytest.raises(NotFound):
        listed(world, JobFilter("dead", queue="none"))


def test_a_search_that_reads_little_continues_where_it_stopped(world: World) -> None:
    ids = deaths(world, [10] * 12)
    rows = search_latest(world.queues.engine, DEAD, limit=100, most=2)
    assert rows.is_capped
    assert len(rows.jobs) < len(ids)
    assert set(listed(world, limit=2, most=2)) == set(ids)
