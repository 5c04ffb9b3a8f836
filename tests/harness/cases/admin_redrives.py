"""Paced redrives: stopped, interrupted, resumed, each job once."""

from dueline import Dueline, Retry
from dueline.admin import redrives
from dueline.admin.redrives import PacedRedrive
from dueline.admin.search import JobFilter
from dueline.core.clock import SECOND_US
from dueline.core.job import JobId
from tests.harness.cases.admin_bulk_runs import dead_jobs
from tests.harness.world import World

LIKE = JobFilter(queue="q")


def paced(world: World, rate: float = 4) -> PacedRedrive:
    """Begin a redrive."""
    made = PacedRedrive(world.queues, LIKE, "queue:q", rate, "ann")
    made.begin()
    return made


def a_redrive_keeps_its_rate_and_is_stopped_and_resumed(world: World) -> None:
    """Redrive fourteen jobs at four a second; stop after some, resume, and leave none."""
    ids = dead_jobs(world)
    began_us = world.clock.monotonic_us()
    first = paced(world)
    pages = first.run()
    for _ in range(4):  # of two jobs at most
        next(pages)
    took_s = (world.clock.monotonic_us() - began_us) / SECOND_US
    assert living(world, ids) - 2 <= 4 * took_s <= living(world, ids)
    redrives.stop(world.queues.engine, first.redrive.id)
    before = living(world, ids)
    assert sum(1 for _ in pages) <= 2  # within a second
    assert living(world, ids) - before <= 4
    assert first.redrive.state == "stopped"
    done = living(world, ids)
    (stored,) = redrives.redrives(world.queues.engine)
    assert (stored.state, stored.done, stored.matching) == ("stopped", done, len(ids))
    again = redrives.chosen(world.queues.engine, None, to_resume=True)
    second = PacedRedrive(world.queues, again.like, again.written, 100, "bob")
    second.begin()
    results = list(second.run())
    assert sum(one.done for one in results) == len(ids) - done
    assert living(world, ids) == len(ids)
    (stored,) = redrives.redrives(world.queues.engine)
    assert (stored.state, stored.done, stored.who) == ("done", len(ids), "bob")


def living(world: World, ids: list[JobId]) -> int:
    """Count the jobs that are no longer dead."""
    return sum(world.queues.find(one).status != "dead" for one in ids)


def dead_jobs_are_redriven(url: str) -> None:
    """Redrive dead jobs on a real store in real time."""
    app = Dueline(url)

    @app.task(name="fail", retry=Retry(attempts=1))
    def fail() -> None:
        raise ValueError

    for _ in range(3):
        fail.enqueue()
    app.run_worker(["default"], burst=True)
    run = PacedRedrive(app.queues, JobFilter(task="fail"), "task:fail", 1_000, "ann")
    run.begin()
    assert sum(page.done for page in run.run()) == 3
    assert [one.state for one in app.admin.redrives()] == ["done"]
    assert app.admin.count("state:dead").jobs == 0
    app.close()
