"""What a worker knows of a child process that died, down to the last handler."""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dueline.core.attempt import Crashed, Done, Ended
from dueline.core.clock import SystemClock
from dueline.core.job import Job
from dueline.worker.assignment import Assignment
from dueline.worker.child_board import CELL_BYTES, Board, create_memory
from dueline.worker.child_handle import ChildHandle, spawning
from dueline.worker.process_runner import ProcessRunner, jobs_each
from tests.harness.calls import row_of

APP = """
import os
import time
from pathlib import Path
from dueline import Context, Dueline

app = Dueline("memory://")
FOLDER = Path(__file__).parent

def note(number):
    descriptor = os.open(FOLDER / "notes", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(descriptor, b"%d " % number)
    os.close(descriptor)

@app.task(name="plain")
def plain(number: int) -> None:
    note(number)

@app.task(name="value")
def value(number: int) -> str:
    note(number)
    return "x" * number

@app.task(name="careful")
def careful(context: Context, number: int) -> int:
    note(number)
    return number

@app.task(name="fail")
def fail(number: int) -> None:
    note(number)
    raise ValueError("no" * number)

@app.task(name="vanish")
def vanish(number: int) -> None:
    note(number)
    os._exit(3)

@app.task(name="hold")
def hold(number: int) -> None:
    note(number)
    time.sleep(3600)
"""
WAIT_S = 60

WITHOUT_BOARD = """
import sys
from multiprocessing.connection import Connection
from dueline.api.loading import load_app
from dueline.worker.child_process import Child

place, threads, pipe, _ = sys.argv[1:]
app = load_app(place)
Child(Connection(int(pipe)), dict(app.tasks), int(threads), app.hooks).run()
"""
"""A child as on another machine."""


def without_board(spawn: Callable[[], ChildHandle]) -> Callable[[], ChildHandle]:
    """Return a function that starts a child to which the worker shares no memory."""

    def alone() -> ChildHandle:
        child = spawn()
        return ChildHandle(child.process, child.pipe, {})

    return alone


class Children:
    """A runner with one child, and what the worker would collect."""

    def __init__(self, folder: Path, threads: int, *, has_board: bool) -> None:
        (folder / "boards.py").write_text(APP, encoding="utf-8")
        self.folder = folder
        self.wakeup, clock = threading.Event(), SystemClock()
        program = ["-m", "dueline.api.worker_child"] if has_board else ["-c", WITHOUT_BOARD]
        command = [sys.executable, *program, f"{folder}/boards.py:app", str(threads)]
        spawn = spawning(command, {}, jobs=jobs_each(threads))
        self.runner = ProcessRunner(
            spawn if has_board else without_board(spawn),
            processes=1,
            threads=threads,
            clock=clock,
            now_us=clock.wall_us,
            wakeup=self.wakeup,
        )
        self.runner.run_us = 1.0  # as after many short jobs: all of them are sent in advance
        self.ended: dict[bytes, Ended] = {}
        self.runner.start()

    def take(self, count: int) -> None:
        """Wait for so many endings."""
        self.wait(lambda: len(self.ended) >= count)

    def wait(self, is_so: Callable[[], bool]) -> None:
        """Do what a worker does until something is so."""
        give_up_s = time.monotonic() + WAIT_S
        while not is_so():
            assert time.monotonic() < give_up_s, self.ended
            self.wakeup.wait(0.01)
            self.wakeup.clear()
            for one in self.runner.collect():
                assert one.job.id not in self.ended, "it ended twice"
                self.ended[one.job.id] = one
            self.runner.spread()

    def notes(self) -> list[int]:
        """Return the numbers of the jobs whose handlers were called."""
        path = self.folder / "notes"
        return [*map(int, path.read_bytes().split())] if path.exists() else []


@pytest.fixture
def threads() -> int:
    return 1


@pytest.fixture(params=[True, False], ids=["board", "messages"])
def has_board(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture
def children(tmp_path: Path, threads: int, *, has_board: bool) -> Iterator[Children]:
    made = Children(tmp_path, threads, has_board=has_board)
    try:
        yield made
    finally:
        made.runner.close()


def job_of(task: str, number: int) -> Job:
    return row_of(number)._replace(task=task, at_us=2**62)


def some(*tasks: str) -> list[Assignment]:
    return [Assignment(job_of(task, number), keep=True) for number, task in enumerate(tasks)]


KINDS = ("plain", "value", "careful", "fail")


def test_a_job_that_kills_its_child_is_the_only_one_that_crashed(children: Children) -> None:
    tasks = [*KINDS * 10, "vanish", *KINDS * 2]
    assignments = some(*tasks)
    children.runner.submit(assignments)
    children.take(len(tasks))
    for one in assignments:
        ending = children.ended[one.job.id].ending
        assert isinstance(ending, Crashed) == (one.job.task == "vanish")
        if one.job.task == "value":
            assert isinstance(ending, Done)
    assert sorted(children.notes()) == [*range(len(tasks))]  # each was called once


def test_a_result_that_is_larger_than_a_cell_arrives(children: Children) -> None:
    jobs = [job_of("value", number) for number in (0, CELL_BYTES, 100 * CELL_BYTES)]
    children.runner.submit([Assignment(job, keep=True) for job in jobs])
    children.take(len(jobs))
    assert [children.ended[job.id].ending for job in jobs] == [
        Done(b'"%s"' % (b"x" * number)) for number in (0, CELL_BYTES, 100 * CELL_BYTES)
    ]


@pytest.mark.parametrize("threads", [2])
def test_of_a_child_that_is_killed_what_it_ran_crashed(children: Children) -> None:
    runner = children.runner
    assignments = some("hold", *KINDS * 5, "hold", *KINDS)
    held = {one.job for one in assignments if one.job.task == "hold"}
    runner.submit(assignments)
    children.take(len(KINDS) * 5)
    # A handler counts as running before it is called: these have noted their calls, too.
    called = len(KINDS) * 5 + len(held)
    children.wait(lambda: set(runner.running()) == held and len(children.notes()) == called)
    os.kill(runner._children[0].pid, signal.SIGKILL)
    children.take(len(assignments))
    crashed = {one.job for one in children.ended.values() if isinstance(one.ending, Crashed)}
    assert crashed == held
    assert sorted(children.notes()) == [*range(len(assignments))]


def test_jobs_whose_claims_were_lost_are_not_handed_on(children: Children) -> None:
    runner = children.runner
    assignments = some("hold", *KINDS)
    runner.submit(assignments)
    children.wait(lambda: bool(runner.running() and children.notes()))
    runner.forget([one.job.claim() for one in assignments[1:]])
    os.kill(runner._children[0].pid, signal.SIGKILL)
    children.take(1)
    assert (runner.waiting(), runner.running()) == (0, [])
    assert children.notes() == [0]


def test_cells_hold_a_state_and_an_ending() -> None:
    descriptor = create_memory(3)
    board = Board(descriptor)
    with pytest.raises(OSError, match="Bad file descriptor"):  # else each new child takes one more
        os.fstat(descriptor)
    first, second, third = board.cells()
    board.start(second, 5)
    board.start(third, 6)
    board.end(third, b"ending")
    assert [board.started_us(cell) for cell in (first, second)] == [0, 5]
    assert [board.ending(cell) for cell in (first, second, third)] == [None, None, b"ending"]
    board.end(second, b"")
    assert board.ending(second) == b""
    board.start(third, 0)
    assert board.ending(third) is None
    board.close()
