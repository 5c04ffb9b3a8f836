"""The demo's worker commands."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from dueline.coordination import worker_registry
from examples.demo.tasks import QUEUE, app

PROCESSES = 2
COMMAND = (
    *(sys.executable, "-m", "dueline", "worker", "examples.demo.tasks:app"),
    *("-q", QUEUE, "--processes", str(PROCESSES), "--concurrency", str(PROCESSES)),
)
"""One job a process at a time: parsing is all work and no waiting."""

START_S_MAX = 120
STOP_S_MAX = 120
CHILDREN_EXIT_S_MAX = 60
LANDS_S = 0.2
STOPPED = (128 + signal.SIGTERM, 128 + signal.SIGINT)


class WorkerFault(Exception):
    """A worker did what it should not."""


class WorkerCommand:
    """A `dueline worker` in a process of its own; its log goes to a file.

    Nobody writes to its standard output. Its children inherit that pipe, so the pipe's end
    tells that the last of them is gone.
    """

    def __init__(self, log: Path) -> None:
        """Start it."""
        self.log = log
        with log.open("wb") as stderr:
            self._process = subprocess.Popen(COMMAND, stdout=subprocess.PIPE, stderr=stderr)
        self.pid = self._process.pid

    def check(self) -> None:
        """Make sure that it runs.

        Raises: WorkerFault: it has ended.
        """
        if self._process.poll() is not None:
            raise WorkerFault(f"A worker ended by itself, with {self._process.returncode}.")

    def owns(self, worker: str) -> bool:
        """Tell whether a worker's id, `<host>:<pid>:<random>`, is this one's."""
        return worker.split(":")[-2] == str(self.pid)

    def freeze(self) -> None:
        """Hold it in mid-air; what it has sent to the store lands meanwhile."""
        os.kill(self.pid, signal.SIGSTOP)
        os.waitpid(self.pid, os.WUNTRACED)
        time.sleep(LANDS_S)

    def thaw(self) -> None:
        """Let it go on."""
        os.kill(self.pid, signal.SIGCONT)

    def kill(self) -> None:
        """Kill it with SIGKILL, and wait for its children to end by themselves.

        Raises: WorkerFault: a child outlives it.
        """
        self._process.kill()
        self._wait(CHILDREN_EXIT_S_MAX)

    def stop(self) -> None:
        """Let it finish what it runs, and wait for it and its children.

        Raises: WorkerFault: it does not end, or not well.
        """
        if self._process.poll() is None:
            self._process.terminate()
            self.thaw()  # whatever went wrong while it was held
            self._wait(STOP_S_MAX)
            if self._process.returncode not in STOPPED:
                raise WorkerFault(f"A worker that was stopped exits {self._process.returncode}.")

    def _wait(self, most_s: float) -> None:
        try:
            self._process.communicate(timeout=most_s)
        except subprocess.TimeoutExpired as error:
            self._process.kill()
            raise WorkerFault(f"A worker or its child still runs after {most_s} s.") from error


@contextmanager
def running(count: int, folder: Path) -> Iterator[Sequence[WorkerCommand]]:
    """Start workers, wait until they serve, and stop them in the end."""
    with ExitStack() as stack:
        workers = [WorkerCommand(folder / f"worker-{number + 1}.log") for number in range(count)]
        for worker in workers:
            stack.callback(worker.stop)
        _wait_until_present(workers)
        yield workers


def _wait_until_present(workers: Sequence[WorkerCommand]) -> None:
    give_up_s = time.monotonic() + START_S_MAX
    while time.monotonic() < give_up_s:
        present = worker_registry.present(app.queues.engine.store)
        if all(any(worker.owns(one.worker) for one in present) for worker in workers):
            return
        for worker in workers:
            worker.check()
        time.sleep(0.1)
    raise WorkerFault(f"The workers do not serve after {START_S_MAX} s.")
