"""A runner that holds one job under two claims, as after a stall."""

import sys
import threading
from collections.abc import Callable

import pytest

from dueline.core.attempt import Cancelled, Done, Ended
from dueline.core.clock import SystemClock
from dueline.core.job import Job, JobId, Token
from dueline.core.lane import Lane
from dueline.worker.assignment import Assignment
from dueline.worker.child_handle import spawning
from dueline.worker.execution import Execution
from dueline.worker.process_runner import ProcessRunner
from dueline.worker.runner import Runner
from dueline.worker.thread_runner import ThreadRunner
from tests.harness import failing_tasks
from tests.harness.failing_world import ROOT, World

LANE = Lane("default", 0, 0, 0, "")
FIRST = Job(LANE, 0, JobId(bytes(16)), 0, 0, 0, "listen", 0, b'["a"]', b"", 0, fence=1)
SECOND = FIRST._replace(fence=2, token=Token(b"2" * 16))


def threads() -> Runner:
    clock = SystemClock()
    return ThreadRunner(
        Execution(failing_tasks.app.tasks),
        threads=2,
        clock=clock,
        now_us=clock.wall_us,
        wakeup=threading.Event(),
    )


def child() -> Runner:
    clock = SystemClock()
    command = [
        sys.executable,
        "-m",
        "dueline.api.worker_child",
        "tests.harness.failing_tasks:app",
        "2",
    ]
    return ProcessRunner(
        spawning(command, failing_tasks.app.tasks, jobs=4),
        processes=1,
        threads=2,
        clock=clock,
        now_us=clock.wall_us,
        wakeup=threading.Event(),
    )


@pytest.mark.parametrize("make", [threads, child])
def test_two_claims_of_a_job_are_told_apart(
    world: World, monkeypatch: pytest.MonkeyPatch, make: Callable[[], Runner]
) -> None:
    monkeypatch.setattr(failing_tasks, "FOLDER", world.folder)
    monkeypatch.setenv(failing_tasks.FOLDER_VARIABLE, str(world.folder))
    monkeypatch.chdir(ROOT)
    runner = make()
    runner.start()
    ended: list[Ended] = []

    def have_ended(count: int) -> bool:
        ended.extend(runner.collect())
        return len(ended) == count

    def both_run() -> bool:
        runner.spread()
        return len(runner.running()) == len(world.notes("start")) == 2

    try:
        runner.submit([Assignment(FIRST, keep=True), Assignment(SECOND, keep=True)])
        world.until(both_run)
        runner.forget([FIRST.claim()])
        world.until(lambda: have_ended(1))
        world.let_go("a")
        world.until(lambda: have_ended(2))
    finally:
        runner.close()
    found = {one.job.token: type(one.ending) for one in ended}
    assert found == {FIRST.token: Cancelled, SECOND.token: Done}
