"""Applications whose workers are other processes, which a test stops and kills."""

import contextlib
import importlib.util
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

WAIT_S = 60


def wait_for(is_so: Callable[[], object], what: str) -> None:
    """Wait until something is so."""
    give_up_s = time.monotonic() + WAIT_S
    while not is_so():
        assert time.monotonic() < give_up_s, f"it never came to be: {what}"
        time.sleep(0.01)


def _signal_all(pid: int, number: int) -> None:
    path = Path(f"/proc/{pid}/task/{pid}/children")
    children = [int(child) for child in path.read_text(encoding="ascii").split()]
    for each in (pid, *children):
        os.kill(each, number)


class Program:
    """A module `jobs` with an application `app`, and the workers that run it."""

    def __init__(self, folder: Path, text: str) -> None:
        """Write the module, and load it here to enqueue its jobs."""
        self.folder = folder
        self.workers: list[subprocess.Popen[bytes]] = []
        path = folder / "jobs.py"
        url = f"sqlite:///{folder}/jobs.db"
        path.write_text(f"URL = {url!r}\n{text}", encoding="utf-8")
        spec = importlib.util.spec_from_file_location(f"jobs_of_{folder.name}", path)
        assert spec is not None
        assert spec.loader is not None
        self.module: Any = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(self.module)

    def work(self, *words: str) -> "subprocess.Popen[bytes]":
        """Start a worker."""
        worker = subprocess.Popen(self.command(*words), cwd=self.folder, stderr=subprocess.DEVNULL)
        self.workers.append(worker)
        return worker

    def command(self, *words: str) -> list[str]:
        """Return the command line of a worker."""
        return [sys.executable, "-m", "dueline", "worker", "jobs:app", *words]

    def stop(self, worker: "subprocess.Popen[bytes]") -> None:
        """Let a worker and its children stand still, outside of transactions."""
        for _ in range(1000):
            _signal_all(worker.pid, signal.SIGSTOP)
            if self._is_writable():
                return
            _signal_all(worker.pid, signal.SIGCONT)
            time.sleep(0.001)
        raise AssertionError("the worker has a transaction open each time that it is stopped")

    def go_on(self, worker: "subprocess.Popen[bytes]") -> None:
        """Let a worker and its children go on."""
        _signal_all(worker.pid, signal.SIGCONT)

    def _is_writable(self) -> bool:
        with contextlib.closing(sqlite3.connect(self.folder / "jobs.db", timeout=0.05)) as file:
            try:
                file.execute("begin immediate")
            except sqlite3.OperationalError:
                return False
            file.rollback()
            return True

    def close(self) -> None:
        """Kill the workers, stopped ones too."""
        for worker in self.workers:
            with contextlib.suppress(ProcessLookupError):
                os.kill(worker.pid, signal.SIGKILL)
            worker.wait(WAIT_S)
        self.module.app.close()
