"""A shell that runs command lines in the process of the tests."""

import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from dueline import Dueline
from dueline.cli import run
from dueline.core.store import Extend, Lease, Want
from tests.harness import forked

TASKS = """
import time

from dueline import Context; from dueline import Dueline; from dueline import Retry

app = Dueline("sqlite:///jobs.db")
app.queue("slow", keep=60)
app.queue("mute", keep=0)


@app.task
def add(a: int, b: int = 2) -> int:
    return a + b


@app.task(queue="slow", priority=3)
def sleep(seconds: float) -> None:
    time.sleep(seconds)


@app.task(retry=Retry(attempts=1))
def fail(why: object) -> None:
    raise ValueError(why)


@app.task(retry=Retry(attempts=2, base=1e6, cap=1e6))
def flaky() -> None:
    raise TimeoutError("busy")


@app.task
def echo(ctx: Context, *values: object, **named: object) -> list[object]:
    return [*values, named]


@app.task
def count(ctx: Context, done: int) -> None:
    ctx.progress(done, 4, note="three")


@app.task(queue="mute")
def whisper() -> None:
    pass
"""


STORE = "sqlite:///jobs.db"


WAIT_S = 120.0
"""For so long another process may take, on a machine that is busy with other tests."""


class Answer(NamedTuple):
    """What a command did: its exit code, and what it wrote."""

    code: int
    out: str
    err: str

    @property
    def data(self) -> Any:  # noqa: ANN401  (a test knows what it asked for)
        """The data of a JSON document."""
        return json.loads(self.out)["data"]

    @property
    def why(self) -> str:
        """The second of an error's three lines; makes sure that there are three."""
        lines = self.err.splitlines()
        assert len(lines) == 3, self.err
        assert lines[0].startswith("dueline: ")
        assert lines[1].startswith("    why: ")
        assert lines[2].startswith("    try: ")
        assert len(lines[2]) > len("    try: ")
        return lines[1].removeprefix("    why: ")


class Shell:
    """Runs command lines in this process, each as if in a fresh one."""

    def __init__(self, folder: Path, capture: pytest.CaptureFixture[str]) -> None:
        """Take the folder in which they run."""
        self.folder = folder
        self._capture = capture

    def __call__(self, *words: str) -> Answer:
        """Run a command."""
        sys.modules.pop("tasks", None)
        self._capture.readouterr()
        code = run(words)
        return Answer(code, *self._capture.readouterr())

    def app(self, *words: str) -> Answer:
        """Run a command with the app of the folder."""
        return self("--app", "tasks:app", *words)

    def enqueue(self, *words: str) -> str:
        """Enqueue a job; answer its id."""
        answer = self.app("enqueue", *words)
        assert answer.code == 0, answer
        return answer.out.strip()

    def work(self) -> None:
        """Run a worker in a burst."""
        assert self.app("worker", "--burst").code in (0, 8)  # some tests leave retries

    def ids(self, *words: str) -> list[str]:
        """List the jobs' ids."""
        return [job["id"] for job in self.app("jobs", "list", "-o", "json", *words).data]

    def start(self, job_id: str) -> None:
        """Have a worker that does not live claim and start a job."""
        app = Dueline("sqlite:///jobs.db")
        store, time = app.store, app.queues.engine.time
        row = store.find([bytes.fromhex(job_id)])[0]  # type: ignore[list-item]
        assert row is not None
        token = app.queues.engine.ids.token()
        claimed = store.claim(
            [Want(row.lane, 1)],
            limit=1,
            lease=Lease(time.latest_us(), 60_000_000, "host:1:ab", token),
        )
        assert [job.id.hex() for job in claimed.jobs] == [job_id]
        store.settle([Extend(claimed.jobs[0], claimed.jobs[0].at_us, started=True)])
        app.close()

    @contextmanager
    def worker(self, *words: str) -> Iterator[forked.Process]:
        """Have a worker of the app run, as a process of its own that is killed at the end."""
        process = self.spawn("worker", "tasks:app", *words)
        try:
            give_up_s = time.monotonic() + WAIT_S
            while not self("workers", "list", "-o", "json", "--store", STORE).data:
                assert time.monotonic() < give_up_s
                time.sleep(0.05)
            yield process
        finally:
            process.kill()
            process.communicate()

    def spawn(self, *words: str, **environment: str) -> forked.Process:
        """Start a command as a process of its own."""
        return forked.Process(words, self.folder, {**os.environ, **environment})
