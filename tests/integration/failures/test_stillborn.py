"""Children that end before they have loaded the application."""

import signal
import sys
import threading

import pytest

from dueline.core.clock import SystemClock
from dueline.core.errors import ConfigError
from dueline.worker.child_handle import spawning
from dueline.worker.process_runner import FAILED_STARTS_MAX, ProcessRunner

BORN = 2 * FAILED_STARTS_MAX
AT_MOST_S = 60


def run(program: str) -> int:
    """Start a child, and another each time one ends; count them until something gives up."""
    clock, wakeup = SystemClock(), threading.Event()
    begun: list[int] = []
    runner = ProcessRunner(
        spawning([sys.executable, "-c", program], {}, jobs=1), processes=1, threads=1, clock=clock,
        now_us=clock.wall_us, wakeup=wakeup,
    )  # fmt: skip
    runner.start()
    try:
        while len(begun) < BORN:
            assert wakeup.wait(AT_MOST_S)
            wakeup.clear()
            begun.append(1)
            runner.spread()
    finally:
        runner.close()
    return len(begun)


def test_a_worker_gives_up_whose_application_cannot_be_loaded() -> None:
    with pytest.raises(ConfigError, match="before they have loaded"):
        run("import nothing_of_that_name")


def test_children_that_are_killed_while_they_load_are_replaced_all_the_same() -> None:
    program = f"import os; os.kill(os.getpid(), {int(signal.SIGKILL)})"
    assert run(program) == BORN
