"""A folder with a queue, and the workers on it."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from dueline.api.application import Dueline
from dueline.api.job_handle import Job
from dueline.coordination.worker_registry import present
from dueline.core.attempt import Attempt
from dueline.core.job import Job as Row
from dueline.core.job import JobId
from dueline.jobs.history import attempts
from dueline.jobs.queue import EnqueueRequest
from tests.harness.failing_tasks import FOLDER_VARIABLE, LEASE_VARIABLE
from tests.kills.processes import children_of

TAKEN_OVER_S = 6.0
"""A lease that ends soon after its worker has died, and not while one that lives is held up: it
is extended every two seconds."""


ROOT = Path(__file__).parent.parent.parent
WAIT_S_MAX = 60.0  # for a machine that is busy with other tests
TICK_S = 0.01


class Note(NamedTuple):
    """A line that a handler wrote."""

    what: str
    tag: str
    process: int
    at_s: float


class Running:
    """A worker that was started by the command line."""

    def __init__(self, process: "subprocess.Popen[bytes]", log: Path) -> None:
        """Take the process, and where its log goes."""
        self.process = process
        self._log = log

    def log(self) -> str:
        """Read what it logged so far."""
        return self._log.read_text()

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self.process.send_signal(number)

    def wait(self) -> int:
        """Wait until it ended; answer its exit code. One that hangs says where, in its log."""
        try:
            return self.process.wait(WAIT_S_MAX)
        except subprocess.TimeoutExpired:
            self.signal(signal.SIGABRT)  # see PYTHONFAULTHANDLER
            self.process.wait(WAIT_S_MAX)
            raise AssertionError(f"it did not end:\n{self.log()}") from None

    def stall(self, *children: int) -> list[int]:
        """Freeze it, and children, outside of a transaction; answer what was frozen.

        A process that is frozen while it writes keeps all others from writing.
        """
        pids = [self.process.pid, *children]
        for _ in range(1000):
            for pid in pids:
                os.kill(pid, signal.SIGSTOP)
            if not _locks_for_writing(self.process.pid):
                return pids
            self.signal(signal.SIGCONT)
            time.sleep(TICK_S)
        raise AssertionError("it writes all the time")

    def stop(self) -> None:
        """End it gently."""
        self.signal(signal.SIGTERM)
        assert self.wait() == 128 + signal.SIGTERM, self.log()

    def children(self) -> list[int]:
        """List its child processes."""
        return children_of(self.process.pid)


class World:
    """What a test sees and does."""

    def __init__(self, folder: Path, lease_s: float) -> None:
        """Take an empty folder, and how long a claim lasts without a beat."""
        self.folder = folder
        self.app = Dueline(f"sqlite:///{folder}/queue.db")
        self.app.queue("default", lease=lease_s)
        self._environment = {
            FOLDER_VARIABLE: str(folder),
            LEASE_VARIABLE: str(lease_s),
            "PYTHONFAULTHANDLER": "1",
        }
        self._workers: list[Running] = []

    def worker(self, *flags: str, processes: int = 0, concurrency: int = 4) -> Running:
        """Start a worker on the queue."""
        log = self.folder / f"log-{len(self._workers)}"
        with log.open("wb") as errors:
            process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "dueline", "worker", "tests.harness.failing_tasks:app"),
                    *("--processes", str(processes), "-c", str(concurrency), *flags),
                ],
                cwd=ROOT,
                env=os.environ | self._environment,
                stderr=errors,
            )
        self._workers.append(Running(process, log))
        return self._workers[-1]

    def restart_until_dead(self, job: Job[Any]) -> Running:
        """Start a worker whenever the last one died, until a job is dead."""
        worker = self.worker()

        def is_dead() -> bool:
            nonlocal worker
            if worker.process.poll() is not None:
                worker = self.worker()
            return job.status == "dead"

        self.until(is_dead)
        return worker

    def put(self, task: str, *args: object) -> Job[Any]:
        """Enqueue a call of a task by its name."""
        body = json.dumps(args).encode()
        row = self.app.queues.enqueue(EnqueueRequest("default", task, 0, [body]))[0]
        return self.app.job(row.id.hex())

    def let_go(self, tag: str) -> None:
        """Let the handlers with this tag end."""
        (self.folder / f"go-{tag}").touch()

    def notes(self, what: str = "", tag: str = "") -> list[Note]:
        """Read what handlers wrote, or some of it."""
        path = self.folder / "notes"
        lines = path.read_text().splitlines() if path.exists() else []
        notes = [Note(*json.loads(line)) for line in lines]
        return [note for note in notes if what in ("", note.what) and tag in ("", note.tag)]

    def row(self, job: Job[Any]) -> Row:
        """Read a job's row."""
        row = self.app.queues.find(JobId(bytes.fromhex(job.id))).row
        assert row is not None
        return row

    def attempts(self, job: Job[Any] | None = None) -> list[Attempt]:
        """Read the history, or a job's part of it."""
        told = attempts(self.app.store, "default", 1)
        return [attempt for attempt in told if job is None or attempt.job == job.id]

    def until(self, is_so: Callable[[], object]) -> None:
        """Wait until something is so."""
        give_up = time.monotonic() + WAIT_S_MAX
        while not is_so():
            assert time.monotonic() < give_up, self._seen()
            time.sleep(TICK_S)

    def _seen(self) -> str:
        """Tell what there is to see instead of what is waited for."""
        logs = [f"log of {worker.process.pid}:\n{worker.log()}" for worker in self._workers]
        notes = [f"{note.what} {note.tag} in {note.process}" for note in self.notes()]
        return "\n".join(["it never came to be", *logs, "notes:", *notes[-50:]])

    def until_it_serves(self, worker: Running) -> None:
        """Wait until a worker is known to be there; from then on it handles signals, too."""
        mine = f":{worker.process.pid}:"
        self.until(lambda: any(mine in presence.worker for presence in present(self.app.store)))

    def until_done(self, *jobs: Job[Any]) -> None:
        """Wait until jobs are done."""
        self.until(lambda: all(job.status == "done" for job in jobs))

    def until_started(self, *tags: str) -> None:
        """Wait until handlers with these tags run."""
        self.until(lambda: all(self.notes("start", tag) for tag in tags))

    def close(self) -> None:
        """Kill what is left."""
        for worker in self._workers:
            worker.process.kill()
            worker.process.wait()
        self.app.close()


def _locks_for_writing(pid: int) -> bool:
    """Tell whether a process, which is frozen, has a lock that keeps others from writing."""
    while Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "T":
        time.sleep(TICK_S)
    table = Path("/proc/locks").read_text()
    return any(line.split()[3:5] == ["WRITE", str(pid)] for line in table.splitlines())


def is_alive(pid: int) -> bool:
    """Tell whether a process runs: neither gone nor a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):  # before it was opened, or after
        return False
