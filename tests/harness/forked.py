"""Programs as processes of their own, forked from one that has loaded the package.

Most of a short program's time is that of starting Python and loading what it imports.
`python forked.py` reads programs from its standard input, a JSON list a line: words, folder,
environment, and the files of its output and its errors. It tells the process of each, then how it
ended. A program with a third file is not waited for: both are written to that.
"""

import atexit
import gc
import json
import os
import runpy
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryFile
from typing import NoReturn

COMMAND = "dueline"
LOADED = (
    "dueline.cli", "dueline.stores.sqlite.store", "dueline.worker.process_runner",
    "dueline.api.maintenance_tasks", "dueline.api.launch", "dueline.admin.health",
    *(f"dueline.cli.commands.{name}" for name in ("enqueue", "jobs", "queues", "worker")),
)  # fmt: skip
"""What most programs import."""


def run(words: Sequence[str], folder: Path, environment: Mapping[str, str]) -> tuple[int, str]:
    """Run a Python file, or the command, with its words; return the exit code and the output."""
    server = _server()
    assert server.stdin is not None
    assert server.stdout is not None
    with TemporaryFile("r", encoding="utf-8") as output:
        place = f"/proc/{os.getpid()}/fd/{output.fileno()}"
        request = [words, str(folder), dict(environment), place, place]
        server.stdin.write(json.dumps(request) + "\n")
        server.stdin.flush()
        process = int(server.stdout.readline())
        try:
            code = int(server.stdout.readline())
        except BaseException:  # of a time limit: it would run on, and its end be another's
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
            server.stdout.readline()
            raise
        output.seek(0)
        return code, output.read()


class Process:
    """The command in a process, with what tests use of `subprocess.Popen`.

    Attributes:
        pid: Its process.
        stdout: What it writes.
        stderr: Its log and errors.
        returncode: How it ended; None until that was waited for.
    """

    def __init__(self, words: Sequence[str], folder: Path, environment: Mapping[str, str]) -> None:
        server = _server()
        assert server.stdin is not None
        pipes = [os.pipe() for _ in range(3)]
        (out, _), (err, _), (ended, _) = pipes
        self.stdout, self.stderr = (
            os.fdopen(out, encoding="utf-8"),
            os.fdopen(err, encoding="utf-8"),
        )
        self._ended = os.fdopen(ended, "rb", buffering=0)
        places = [f"/proc/{os.getpid()}/fd/{written}" for _, written in pipes]
        request = [[COMMAND, *words], str(folder), dict(environment), *places]
        server.stdin.write(json.dumps(request) + "\n")
        server.stdin.flush()
        self.pid = int(self._ended.readline())
        for _, written in pipes:
            os.close(written)
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Return how it ended, or None while it runs."""
        if self.returncode is None and select.select([self._ended], [], [], 0)[0]:
            self.wait()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end; return its exit code, or the signal below 0."""
        if self.returncode is None:
            if not select.select([self._ended], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired([COMMAND], timeout or 0)
            self.returncode = int(self._ended.readline())
            self._ended.close()
        return self.returncode

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Read all that it writes, and wait for its end."""
        if self.stdout.closed:
            return "", ""
        with ThreadPoolExecutor() as pool:
            answers = [pool.submit(file.read) for file in (self.stdout, self.stderr)]
            try:
                out, err = (answer.result(timeout) for answer in answers)
            except TimeoutError:
                self.kill()  # or its output would never end
                raise
        self.wait(timeout)
        self.stdout.close()
        self.stderr.close()
        return out, err

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """Ask it to end, unless it has ended."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Kill it, unless it has ended."""
        self.send_signal(signal.SIGKILL)


@cache
def _server() -> "subprocess.Popen[str]":
    """Start the process from which others are forked; it ends with this one."""
    server = subprocess.Popen(
        [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    atexit.register(server.communicate)  # which ends its loop
    return server


def serve() -> None:
    """Fork a process for each program, which goes on as that program."""
    for name in LOADED:
        import_module(name)
    gc.freeze()
    for line in sys.stdin:
        words, folder, environment, out, err, *ended = json.loads(line)
        process = os.fork()
        if not process:
            files = [os.open(os.devnull, os.O_RDONLY)]
            files += [os.open(place, os.O_WRONLY | os.O_APPEND) for place in (out, err)]
            if ended:
                _tell(ended[0], files)
            _become(words, folder, environment, files)
        if ended:
            _reap()
            continue
        print(process, flush=True)  # noqa: T201
        _, status = os.waitpid(process, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)  # noqa: T201


def _tell(place: str, files: Sequence[int]) -> None:
    """Fork the program, and tell of it; only the program returns."""
    file = os.open(place, os.O_WRONLY)
    process = os.fork()
    if not process:
        os.close(file)
        return
    os.write(file, b"%d\n" % process)
    for number in (*range(3), *files):  # of which others may wait for the end
        os.close(number)
    _, status = os.waitpid(process, 0)
    os.write(file, b"%d\n" % os.waitstatus_to_exitcode(status))
    os._exit(0)


def _reap() -> None:
    """Forget the processes that waited for a program."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _become(
    words: Sequence[str], folder: str, environment: Mapping[str, str], files: Sequence[int]
) -> NoReturn:
    """Be what a shell would have started in a folder."""
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    os.chdir(folder)
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    sys.stdin = os.fdopen(0, closefd=False)
    sys.stdout, sys.stderr = (os.fdopen(number, "w", 1, closefd=False) for number in (1, 2))
    sys.argv = list(words)
    if words[0] == COMMAND:
        sys.orig_argv = [sys.executable, "-m", *words]
        runpy.run_module(COMMAND, run_name="__main__")
    else:
        sys.path.insert(0, folder)
        runpy.run_path(words[0], run_name="__main__")
    sys.exit()


if __name__ == "__main__":
    sys.path.pop(0)  # no module of this folder is one of a program's
    serve()
