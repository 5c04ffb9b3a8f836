"""Schedules, and the jobs of their occurrences."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from dueline.core.attempt import Attempt, Outcome
from dueline.core.clock import SECOND_US
from dueline.core.job import Job
from dueline.jobs.history import attempts
from dueline.schedules import schedule as definition
from dueline.schedules.schedule import Schedule, Template
from tests.harness.world import World, world_on

EVERY_US = 20 * SECOND_US


TEMPLATE = Template("t", "q", 0, b"[1]")


@contextmanager
def fresh(kind: str) -> Iterator[World]:
    """Make a world of its own, for as long as it is used."""
    with TemporaryDirectory() as folder:
        world = world_on(kind, Path(folder))
        yield world
        world.store.close()


def waiting(world: World, queue: str = "q") -> list[Job]:
    """List the jobs that may still run, in the order of their times."""
    rows = (job for job in world.queues.engine.jobs_of(queue) if not job.outcome)
    return sorted(rows, key=lambda job: job.due_us)


NOW_US = 1000 * EVERY_US


def times_in(numbers: Sequence[int]) -> list[int]:
    """Name times of ALONE by how many there are from the present."""
    return [NOW_US + number * EVERY_US for number in numbers]


def end(world: World, job: Job) -> None:
    """Have a job done."""
    world.end(world.claim(job.id), Outcome("done", world.now_us))


def found(world: World) -> Schedule:
    """Read the schedule."""
    stored = definition.stored(world.store, "s")
    assert stored is not None
    return stored.schedule


def left_out(world: World) -> list[Attempt]:
    """List what the history tells of times that made no job."""
    shards = world.queues.engine.catalog.settings("q").shards_read
    told = attempts(world.store, "q", shards, everything=True)
    return [attempt for attempt in told if attempt.outcome == "skipped"]
