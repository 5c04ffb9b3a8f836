"""Schedules that no monitor advances."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from dueline import Dueline
from dueline.api.worker_plan import plan_of
from dueline.coordination.leases import holder_of
from dueline.core.attempt import Outcome
from dueline.core.clock import SECOND_US
from dueline.core.job import Job
from dueline.schedules import schedule as definition
from dueline.schedules import scheduler
from dueline.schedules.schedule import Overlap, Template, Timing
from dueline.schedules.timetable import CHECK_US, OVERDUE_US, REST_US, Timetable
from tests.harness.queues import queues_on
from tests.harness.world import World

TEMPLATE = Template("t", "q", 0, b"[1]")


GAP_S_MAX = 3


def jobs_of(world: World) -> list[Job]:
    return sorted(world.queues.engine.jobs_of("q"), key=lambda job: job.due_us)


def engines(world: World, count: int) -> list[Timetable]:
    """Make the timetables of so many workers that live."""
    made = []
    for number in range(count):
        world.live(f"w{number}")
        queues = queues_on(world.store, world.clock)
        made.append(Timetable(queues, f"w{number}"))
    return made


class Town:
    """Workers that check schedules on one clock, each at its time."""

    def __init__(self, world: World, timetables: list[Timetable]) -> None:
        self.world = world
        self.checks = 0
        self._at_us = [(world.now_us, timetable) for timetable in timetables]

    def run(self, span_s: float) -> None:
        """Let so much time pass."""
        end_us = self.world.now_us + round(span_s * SECOND_US)
        while True:
            at_us, timetable = min(self._at_us, key=lambda turn: turn[0])
            if at_us > end_us:
                break
            self.world.clock.advance(us=max(0, at_us - self.world.now_us))
            self._at_us.remove((at_us, timetable))
            self._at_us.append((self.world.now_us + timetable.step().rest_us, timetable))
            self.checks += 1
        self.world.clock.advance(us=end_us - self.world.now_us)


def finish(world: World) -> None:
    for job in jobs_of(world):
        if job.at_us <= world.now_us:
            world.queues.cancel(job.id)


WAIT_S = 90.0


@pytest.mark.long
@pytest.mark.parametrize("overlap", ["allow", "skip", "wait", "replace"])
def test_without_any_monitor_no_occurrence_is_late(world: World, overlap: Overlap) -> None:
    # rule Z6
    scheduler.put(world.queues, "s", TEMPLATE, Timing(every_us=SECOND_US, overlap=overlap))
    town = Town(world, engines(world, 3))
    for _ in range(600):
        town.run(0.25)
        late_s = [(world.now_us - job.due_us) / SECOND_US for job in jobs_of(world)]
        assert all(late < GAP_S_MAX for late in late_s), late_s
        finish(world)
    stored = scheduler.find(world.queues.engine, "s").stored
    assert stored > 50


@pytest.mark.long
@pytest.mark.parametrize("overlap", ["skip", "wait", "replace"])
def test_when_the_monitor_dies_no_gap_is_longer_than_three_seconds(
    world: World, overlap: Overlap
) -> None:
    # T10, rule Z6
    scheduler.put(world.queues, "s", TEMPLATE, Timing(every_us=SECOND_US, overlap=overlap))
    town = Town(world, engines(world, 4)[:3])  # the elected one is another
    ran_us = [world.now_us]
    for tick in range(1200):
        town.run(0.05)
        if tick % 20 == 0 and tick < 400:  # the monitor, until it dies
            scheduler.advance_all(world.queues)
        if any(job.at_us <= world.now_us for job in jobs_of(world)):
            ran_us.append(world.now_us)
            finish(world)
    gaps_s = [(after - before) / SECOND_US for before, after in pairwise(ran_us)]
    assert max(gaps_s) <= GAP_S_MAX
    assert len(ran_us) > 30


def test_a_hundred_workers_check_little_more_often_than_a_few(world: World) -> None:
    scheduler.put(world.queues, "s", TEMPLATE, Timing(every_us=SECOND_US, overlap="skip"))
    town = Town(world, engines(world, 100))
    town.run(10)  # each has checked twice at most, and knows how many others there are
    before = town.checks
    town.run(20)
    assert (town.checks - before) / 20 < 16


def test_a_hundred_workers_rest_where_there_are_no_schedules(world: World) -> None:
    town = Town(world, engines(world, 100))
    town.run(1)
    before = town.checks
    world.clock.advance(us=1)
    town.run(25)  # before they are taken for dead
    assert (town.checks - before) / 25 < 2


def test_without_schedules_a_check_is_one_read_every_ten_seconds(world: World) -> None:
    assert Timetable(world.queues, "w").step().rest_us == REST_US


def test_a_check_comes_when_a_schedule_is_overdue(world: World) -> None:
    timetable = Timetable(world.queues, "w")
    scheduler.put(world.queues, "s", TEMPLATE, Timing(every_us=2 * SECOND_US, overlap="skip"))
    assert CHECK_US < timetable.step().rest_us < 5 * SECOND_US
    scheduler.pause(world.queues, "s")
    assert timetable.step().rest_us == REST_US
    scheduler.remove(world.queues, "s")
    timetable.step()
    assert scheduler.all_schedules(world.queues.engine) == []


# --- real workers ---------------------------------------------------------------------------------

APP = """
import pathlib, time

from dueline import Dueline

app = Dueline("sqlite:///jobs.db")


@app.task(name="tick")
def tick(name):
    with open(f"{name}.ran", "a") as file:
        file.write(f"{time.time()}\\n")
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "jobsapp.py").write_text(APP)
    return tmp_path


def declare(folder: Path, *overlaps: Overlap) -> Dueline:
    """Store schedules as a process does that then ends."""
    app = Dueline(f"sqlite:///{folder}/jobs.db")
    for overlap in overlaps:
        body = json.dumps([overlap]).encode()
        template = Template("tick", "default", 0, body)
        scheduler.put(app.queues, overlap, template, Timing(every_us=SECOND_US, overlap=overlap))
    return app


def start(folder: Path, *flags: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "dueline", "worker", "jobsapp:app", *flags],
        cwd=folder, env=os.environ, stderr=subprocess.DEVNULL,
    )  # fmt: skip


def times(folder: Path, name: str) -> list[float]:
    path = folder / f"{name}.ran"
    return [float(line) for line in path.read_text().split()] if path.exists() else []


def until(is_so: Callable[[], bool]) -> None:
    give_up_s = time.monotonic() + WAIT_S
    while not is_so():
        assert time.monotonic() < give_up_s, "it never came to be"
        time.sleep(0.02)


@pytest.mark.slow
@pytest.mark.sqlite
def test_a_worker_without_a_monitor_goes_on_storing(folder: Path) -> None:
    # T8: the declarer stores a minute ahead, which is not waited for here
    app = declare(folder, "skip")
    worker = start(folder, "--no-monitor")
    try:
        until(lambda: len(times(folder, "skip")) > 4)
    finally:
        worker.kill()
        worker.wait()
        app.close()


@pytest.mark.slow
@pytest.mark.sqlite
def test_a_burst_stores_what_is_due_and_runs_it(folder: Path) -> None:
    app = declare(folder, "skip")
    body = json.dumps(["late"]).encode()
    start_us = app.queues.engine.time.latest_us() - 10 * SECOND_US
    timing = Timing(every_us=3600 * SECOND_US, start_us=start_us)
    template = Template("tick", "default", 0, body)
    # Made by a process that died right after that.
    made = definition.Schedule(template, timing, app.queues.engine.ids.token(), start_us - 1)
    commit = definition.put("late", made, version=app.queues.engine.ids.token(), expect=b"")
    assert app.store.commit(commit.partition, commit.writes)
    assert start(folder, "--burst").wait(WAIT_S) == 0
    assert len(times(folder, "late")) == 1
    app.close()


@pytest.mark.long
@pytest.mark.sqlite
def test_a_monitor_that_is_killed_stops_no_schedule(folder: Path) -> None:
    # T10: a lease of 20 s is not waited for
    names: tuple[Overlap, ...] = ("skip", "wait", "replace")
    app = declare(folder, *names)
    workers = [start(folder) for _ in range(3)]
    try:
        until(lambda: all(len(times(folder, name)) > 2 for name in names))
        grant = holder_of(app.store)
        assert grant is not None
        pid = int(grant.holder.split(":")[1])
        assert pid in [worker.pid for worker in workers]
        os.kill(pid, signal.SIGKILL)
        before = {name: len(times(folder, name)) for name in names}
        until(lambda: all(len(times(folder, name)) > before[name] + 4 for name in names))
        for name in names:
            ran = times(folder, name)
            assert max(b - a for a, b in pairwise(ran)) < 18, ran
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
        app.close()


def test_a_burst_and_a_worker_without_a_monitor_are_never_elected() -> None:
    assert not plan_of(["default"], 1, 1, 0, burst=True).monitor
    assert not plan_of(["default"], 1, 1, 0, monitor=False).monitor


def test_a_worker_that_has_advanced_a_schedule_decides_its_next_occurrence_in_time(
    world: World,
) -> None:
    # rule Z6: a schedule that no other process changes has no leader
    timing = Timing(every_us=20 * SECOND_US, overlap="skip")
    scheduler.put(world.queues, "s", Template("t", "q", 0, b"[1]"), timing)
    timetable, waits_us = Timetable(world.other(), "w1"), [0, OVERDUE_US, 0]
    for place, wait_us in enumerate(waits_us):
        world.clock.advance(us=20 * SECOND_US - (waits_us[place - 1] if place else 0))
        if wait_us:
            assert timetable.step().skews_us == []  # perhaps a leader does it
            world.clock.advance(us=wait_us)
        assert timetable.step().skews_us == ([wait_us] if place else [])  # the first one is stored
        (job,) = world.queues.engine.jobs_of("q")
        world.end(world.claim(job.id), Outcome("done", world.now_us))
