"""Programs as processes of their own, forked from one that has loaded the package.

Most of a short program's time is that of starting Python and loading what it imports.
`python forked.py` reads programs from its standard input, a JSON list a line: words, folder,
environment, and the file that the program writes to. It tells the process of each, then how it
ended.
"""

import atexit
import gc
import json
import os
import runpy
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryFile
from typing import NoReturn

COMMAND = "dueline"
LOADED = (
    "dueline.cli", "dueline.stores.sqlite.store", "dueline.worker.process_runner",
    "dueline.monitor.monitor", "dueline.api.launch", "dueline.admin.health",
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
        server.stdin.write(json.dumps([words, str(folder), dict(environment), place]) + "\n")
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
        words, folder, environment, place = json.loads(line)
        process = os.fork()
        if not process:
            _become(words, folder, environment, place)
        print(process, flush=True)  # noqa: T201
        _, status = os.waitpid(process, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)  # noqa: T201


def _become(
    words: Sequence[str], folder: str, environment: Mapping[str, str], place: str
) -> NoReturn:
    """Be what a shell would have started in a folder."""
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    os.chdir(folder)
    nothing, output = os.open(os.devnull, os.O_RDONLY), os.open(place, os.O_WRONLY | os.O_APPEND)
    for number in range(3):
        os.dup2(output if number else nothing, number)
    sys.stdin = os.fdopen(0, closefd=False)
    sys.stdout, sys.stderr = (os.fdopen(number, "w", 1, closefd=False) for number in (1, 2))
    sys.argv = list(words)
    if words[0] == COMMAND:
        runpy.run_module(COMMAND, run_name="__main__")
    else:
        sys.path.insert(0, folder)
        runpy.run_path(words[0], run_name="__main__")
    sys.exit()


if __name__ == "__main__":
    sys.path.pop(0)  # no module of this folder is one of a program's
    serve()
