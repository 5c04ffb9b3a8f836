"""Worker processes of the demo."""

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
"""One job at a time for each process, because parsing uses the processor only."""

START_S_MAX = 120
STOP_S_MAX = 120
CHILDREN_EXIT_S_MAX = 60
LANDS_S = 0.2
STOPPED = (128 + signal.SIGTERM, 128 + signal.SIGINT)


class WorkerFault(Exception):
    """A worker ended unexpectedly or does not end."""


class WorkerCommand:
    """A `dueline worker` in a separate process, with its log in a file.

    Its children inherit the unused standard output, so the end of that pipe shows that the
    last of them has exited.
    """

    def __init__(self, log: Path) -> None:
        """Start it."""
        self.log = log
        with log.open("wb") as stderr:
            self._process = subprocess.Popen(COMMAND, stdout=subprocess.PIPE, stderr=stderr)
        self.pid = self._process.pid

    def check(self) -> None:
        """Check that the worker runs.

        Raises: WorkerFault: it has ended.
        """
        if self._process.poll() is not None:
            raise WorkerFault(f"A worker exited unexpectedly with code {self._process.returncode}.")

    def owns(self, worker: str) -> bool:
        """Return whether a worker id, `<host>:<pid>:<random>`, belongs to this worker."""
        return worker.split(":")[-2] == str(self.pid)

    def freeze(self) -> None:
        """Stop the process; requests that it has sent reach the store meanwhile."""
        os.kill(self.pid, signal.SIGSTOP)
        os.waitpid(self.pid, os.WUNTRACED)
        time.sleep(LANDS_S)

    def thaw(self) -> None:
        """Resume the process."""
        os.kill(self.pid, signal.SIGCONT)

    def kill(self) -> None:
        """Kill the worker with SIGKILL, and wait for its children to exit.

        Raises: WorkerFault: a child still runs.
        """
        self._process.kill()
        self._wait(CHILDREN_EXIT_S_MAX)

    def stop(self) -> None:
        """Stop the worker gracefully, and wait for it and its children.

        Raises: WorkerFault: it does not exit, or with another code.
        """
        if self._process.poll() is None:
            self._process.terminate()
            self.thaw()  # in case an error occurred while it was stopped
            self._wait(STOP_S_MAX)
            if self._process.returncode not in STOPPED:
                raise WorkerFault(f"A stopped worker exited with code {self._process.returncode}.")

    def _wait(self, most_s: float) -> None:
        try:
            self._process.communicate(timeout=most_s)
        except subprocess.TimeoutExpired as error:
            self._process.kill()
            raise WorkerFault(
                f"A worker or its child process still runs after {most_s} s."
            ) from error


@contextmanager
def running(count: int, folder: Path) -> Iterator[Sequence[WorkerCommand]]:
    """Start workers, wait until they are registered, and stop them at the end."""
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
    raise WorkerFault(f"The workers did not start within {START_S_MAX} s.")
