"""Paced redrives."""

import subprocess
import sys
from dataclasses import replace

import pytest

from dueline.admin import redrives
from dueline.admin.redrives import STALE_US, PacedRedrive, read_rate
from dueline.admin.search import JobFilter
from dueline.core.clock import SECOND_US
from dueline.core.durations import instant_text
from dueline.core.errors import BadInput, Conflict, NotFound
from dueline.core.job import JobId
from dueline.core.process_identity import Whereabouts
from tests.harness.world import World, dead_jobs

LIKE = JobFilter(queue="q")


def paced(world: World, rate: float = 4) -> PacedRedrive:
    """Begin a redrive."""
    made = PacedRedrive(world.queues, LIKE, "queue:q", rate, "ann")
    made.begin()
    return made


def living(world: World, ids: list[JobId]) -> int:
    """Count the jobs that are no longer dead."""
    return sum(world.queues.find(job_id).status != "dead" for job_id in ids)


def test_a_redrive_keeps_its_rate_and_is_stopped_and_resumed(world: World) -> None:
    """Redrive fourteen jobs at four a second; stop after some, resume, and leave none."""
    # R17
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
    assert sum(result.done for result in results) == len(ids) - done
    assert living(world, ids) == len(ids)
    (stored,) = redrives.redrives(world.queues.engine)
    assert (stored.state, stored.done, stored.who) == ("done", len(ids), "bob")


def test_who_dies_is_resumed_after_a_while_and_no_job_is_retried_twice(world: World) -> None:
    ids = dead_jobs(world)
    killed = paced(world)
    pages = killed.run()
    next(pages)
    with pytest.raises(Conflict, match="runs already"):
        PacedRedrive(world.queues, LIKE, "", 4, "bob")
    world.clock.advance(2)
    with pytest.raises(Conflict, match="already, or its process was killed") as caught:
        redrives.chosen(world.queues.engine, None, to_resume=True)
    at = instant_text(killed.redrive.beat_us + STALE_US)
    assert "wrote its progress 2s ago" in caught.value.message
    assert at in caught.value.hint
    world.clock.advance(us=STALE_US)
    known = redrives.chosen(world.queues.engine, killed.redrive.id[:4], to_resume=True)
    again = PacedRedrive(world.queues, known.like, known.written, known.rate, "bob")
    again.begin()
    assert sum(page.done for page in again.run()) == len(ids) - 2
    assert living(world, ids) == len(ids)
    assert list(pages) == []  # it was only suspended
    assert [redrive.state for redrive in redrives.redrives(world.queues.engine)] == ["done"]


def test_a_redrive_whose_process_is_gone_is_resumed_at_once(world: World) -> None:
    # R17
    ids = dead_jobs(world)
    code = "from dueline.core.process_identity import own; print(*own())"
    printed = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    space, pid, started = printed.stdout.split()
    killed = PacedRedrive(world.queues, LIKE, "queue:q", 4, "ann")
    killed.redrive = replace(killed.redrive, process=Whereabouts(space, int(pid), started))
    killed.begin()
    next(killed.run())
    known = redrives.chosen(world.queues.engine, None, to_resume=True)
    again = PacedRedrive(world.queues, known.like, known.written, known.rate, "bob")
    again.begin()
    assert sum(page.done for page in again.run()) == len(ids) - 2
    assert living(world, ids) == len(ids)


def test_an_interrupted_redrive_says_so(world: World) -> None:
    dead_jobs(world)
    run = paced(world)
    pages = run.run()
    next(pages)
    pages.close()
    assert [redrive.state for redrive in redrives.redrives(world.queues.engine)] == ["stopped"]
    assert redrives.stop(world.queues.engine, run.redrive.id).state == "stopped"
    with pytest.raises(NotFound):
        redrives.stop(world.queues.engine, "x")


@pytest.mark.parametrize(
    ("text", "rate"), [("50", 50), ("50/s", 50), ("30/m", 0.5), ("600/5m", 2), ("0.5/s", 0.5)]
)
def test_rates_are_read(text: str, rate: float) -> None:
    assert read_rate(text) == rate


@pytest.mark.parametrize("text", ["", "0", "x", "-1/s", "5/0s", "5/x"])
def test_what_is_no_rate_is_refused(text: str) -> None:
    with pytest.raises(BadInput):
        read_rate(text)
