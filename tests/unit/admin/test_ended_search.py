"""Ended jobs are found by time, error and tag, the latest first (V1)."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from dueline import Dueline, Retry
from dueline.admin import ended_search as search
from dueline.admin.filters import parse_filter
from dueline.admin.job_lists import list_jobs
from dueline.core.attempt import Attempt, Outcome
from dueline.core.clock import to_datetime
from dueline.core.pagination import rows_in
from dueline.jobs.history import HISTORY_SUFFIX
from dueline.jobs.history_batch import is_bundle
from tests.harness.addresses import world_of
from tests.harness.world import World, world_on

BOTH = ((1, False), (40, True))
"""Numbers of jobs that end together: in rows of their own, and in a row of many."""


@pytest.fixture(
    params=[
        pytest.param("memory", marks=pytest.mark.memory),
        pytest.param("sqlite", marks=pytest.mark.sqlite),
        pytest.param("postgres", marks=[pytest.mark.postgres, pytest.mark.long]),
        pytest.param("cassandra", marks=[pytest.mark.cassandra, pytest.mark.long]),
        pytest.param("redis", marks=[pytest.mark.redis, pytest.mark.long]),
    ]
)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    """A store of a kind, on a clock."""
    with world_of(request.param, tmp_path) as made:
        yield made


def work(words: str) -> None:
    """Fail with some words."""
    if words:
        raise TimeoutError(words)


def ended(app: Dueline, number: int, words: str, *tags: str) -> list[str]:
    """Let jobs end in one burst; return their ids."""
    task = app.task_named("work")
    using = task.using(tags=list(tags)) if tags else task
    jobs = using.enqueue_many([(words,)] * number)
    app.run_worker(burst=True)
    return [job.id for job in jobs]


def found(app: Dueline, text: str, limit: int = 1000) -> set[str]:
    """Return the ids of the jobs that a filter finds."""
    return {job.id for job in app.admin.list(text, limit=limit).jobs}


@pytest.mark.sqlite
@pytest.mark.parametrize(("number", "is_bundled"), BOTH)
def test_jobs_are_found_by_error_and_tag(tmp_path: Path, number: int, is_bundled: bool) -> None:  # noqa: FBT001
    app = Dueline(f"sqlite:///{tmp_path}/jobs.db")
    app.task(name="work", retry=Retry(attempts=1))(work)
    failed = ended(app, number, 'Upstream Ünavailable "503"', "import", "näht")
    fine = ended(app, number, "", "import")
    plain = ended(app, number, "")
    rows = rows_in(app.store, "default" + HISTORY_SUFFIX, 0, after=None)
    assert any(is_bundle(row) for row in rows) == is_bundled
    assert found(app, "state:ended") == {*failed, *fine, *plain}
    assert found(app, "state:ended tag:import") == {*failed, *fine}
    assert found(app, "state:ended tag:näht") == set(failed)
    assert found(app, "state:ended tag:imp") == set()
    assert found(app, "state:done tag:import") == set(fine)
    for text in ("error:upstream", "error:NAVAILABLE", "error:Ünavailable", "error:503",
                 "upstream tag:import"):  # fmt: skip
        assert found(app, f"state:ended {text}") == set(failed)
    assert found(app, f"state:ended {failed[0][:13]}") >= {failed[0]}
    assert found(app, "state:ended error:nothing") == set()
    assert found(app, "state:ended since:1h until:30m") == set()
    assert found(app, "state:ended since:1h task:w*") == {*failed, *fine, *plain}
    app.close()


def iso(at_us: int) -> str:
    """Return a time as a filter has it."""
    return to_datetime(at_us).isoformat()


def test_windows_and_pages_have_all_events_once(world: World) -> None:
    jobs = []
    for step in (1, 3, 30, 300, 3000, 90_000):
        for _ in range(3):
            job = world.claim(world.put())
            world.end(job, Outcome("done", world.now_us))
            jobs.append(job.id.hex())
            world.clock.advance(step)
    engine, like = world.queues.engine, parse_filter("state:done", world.now_us)
    past = search.search_ended(engine, like, limit=100)
    assert [event.job for event in past.attempts] == jobs[::-1]
    read: list[Attempt] = []
    before = None
    while page := search.search_ended(engine, like, limit=4, before=before).attempts:
        read += page
        assert len(read) <= len(jobs)
        before = (page[-1].ended_us, page[-1].job)
    assert [event.job for event in read] == jobs[::-1]
    middle = past.attempts[7]
    for text, expected in (
        (f"since:{iso(middle.ended_us)}", jobs[::-1][:8]),
        (f"until:{iso(middle.ended_us)}", jobs[::-1][8:]),
    ):
        like = parse_filter(f"state:ended {text}", world.now_us)
        assert [
            event.job for event in search.search_ended(engine, like, limit=100).attempts
        ] == expected
    capped = search.search_ended(
        engine, parse_filter("state:done", world.now_us), limit=100, most=5
    )
    assert capped.is_capped
    assert {event.job for event in capped.attempts} <= set(jobs)
    whole = [event.job for event in past.attempts if event.ended_us >= capped.since_us]
    assert [event.job for event in capped.attempts] == whole


@pytest.mark.sqlite
def test_pages_go_on_where_a_search_stopped(tmp_path: Path) -> None:
    world = world_on("sqlite", tmp_path)
    jobs = []
    for _ in range(30):
        job = world.claim(world.put())
        world.end(job, Outcome("done", world.now_us))
        jobs.append(job.id.hex())
        world.clock.advance(20)
    read: list[str] = []
    after = None
    for _ in range(30):
        like = parse_filter("state:ended", world.now_us)
        page = list_jobs(world.queues.engine, like, limit=100, most=6, after=after)
        read += [job.id for job in page.jobs]
        after = page.next
        if after is None:
            break
        assert page.is_capped
    assert read == jobs[::-1]
