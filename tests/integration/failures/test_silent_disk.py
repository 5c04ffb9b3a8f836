"""Processes whose disk stands still (R11)."""

import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from signal import SIGTERM

import pytest

from dueline import Dueline
from tests.harness.relay import free_port
from tests.harness.web import status_of
from tests.kills.disk import FrozenDisk, MountError, frozen_disk, has_ended

PATIENCE_S = 120.0

TASKS = """
from dueline import Dueline

app = Dueline()


@app.task
def note(number: int) -> int:
    return number
"""


EMBEDDING = """
import sys

from tasks import app, note

try:
    with app.worker(drain=0):
        note.enqueue(1).result(timeout=120)
        print("ready", flush=True)
        sys.stdin.readline()
except Exception as error:
    print(type(error).__name__, error, flush=True)
"""


WAITING = """
import asyncio
import sys

from dueline import pipeline
from tasks import app, note

job, flow = note.enqueue(1), app.start(pipeline(note.step(1)))
waits = {
    "result": lambda: job.result(timeout=5),
    "aresult": lambda: asyncio.run(job.aresult(timeout=5)),
    "workflow": lambda: flow.result(timeout=5),
}
print("ready", flush=True)
sys.stdin.readline()
try:
    waits[sys.argv[1]]()
except Exception as error:
    print(type(error).__name__, error, flush=True)
"""


_started: list["subprocess.Popen[str]"] = []


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "tasks.py").write_text(TASKS)
    return tmp_path


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[FrozenDisk]:
    mounted = tmp_path / "disk"
    mounted.mkdir()
    try:
        with frozen_disk(mounted, tmp_path / "image") as disk:
            yield disk
            while _started:  # those that a failed test left
                _started.pop().kill()
    except MountError as error:
        pytest.skip(f"no disk can be mounted: {error}")


def wait_for(is_so: Callable[[], bool]) -> None:
    until_s = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < until_s
        time.sleep(0.05)


def start(folder: Path, url: str, *words: str) -> "subprocess.Popen[str]":
    """Start a command in a folder."""
    command = subprocess.Popen(
        [sys.executable, "-m", "dueline", *words],
        cwd=folder,
        env={**os.environ, "DUELINE_STORE": url},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    _started.append(command)
    return command


def run_program(folder: Path, url: str, *words: str) -> "subprocess.Popen[str]":
    """Run a program in a folder; the test writes to it and reads what it prints."""
    program = subprocess.Popen(
        [sys.executable, *words],
        cwd=folder,
        env={**os.environ, "DUELINE_STORE": url},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    _started.append(program)
    return program


def read_line(program: "subprocess.Popen[str]") -> str:
    """Return the next line that a program prints."""
    assert program.stdout is not None
    readable, _, _ = select.select([program.stdout], [], [], PATIENCE_S)
    assert readable
    return program.stdout.readline()


def enqueue_one(url: str) -> Dueline:
    """Enqueue a job, and leave the store open."""
    app = Dueline(url)
    app.task(name="tasks.note")(lambda number: number).enqueue(1)
    return app


def test_a_worker_ends_although_its_disk_stands_still(folder: Path, disk: FrozenDisk) -> None:
    """Its thread that waits for the disk cannot be ended, and keeps nothing but its own memory."""
    app = Dueline(disk.url)
    note = app.task(name="tasks.note")(lambda number: number)
    worker = start(folder, disk.url, "worker", "tasks:app", "--drain", "1s")
    assert note.enqueue(1).result(timeout=PATIENCE_S) == 1
    disk.freeze()
    time.sleep(2)  # its calls are under way
    worker.send_signal(SIGTERM)
    wait_for(lambda: worker.poll() is not None or has_ended(worker.pid))
    disk.thaw()
    worker.communicate(timeout=PATIENCE_S)
    assert worker.returncode == 128 + SIGTERM
    app.close()


CODES = {
    "health": 6,
    "jobs list": 3,
    "jobs cancel 0000": 3,
    "queues pause default": 3,
    "enqueue tasks.note 1 --app tasks:app": 3,
    "stats": 3,
    "doctor": 3,
}


def test_commands_end_although_the_disk_stands_still(folder: Path, disk: FrozenDisk) -> None:
    """The process that the caller waits for exits; a child with the call stays until a thaw."""
    enqueue_one(disk.url).close()
    disk.freeze()
    urls = [disk.url, *[f"{disk.url}?timeout=1s"] * len(CODES)]  # once with the default
    words = ["health", *CODES]
    running = [start(folder, url, *text.split()) for url, text in zip(urls, words, strict=True)]
    for text, command in zip(words, running, strict=True):
        wait_for(lambda command=command: command.poll() is not None)  # type: ignore[misc]
        assert command.poll() == CODES[text], text
    disk.thaw()
    for command in running:
        _, errors = command.communicate(timeout=PATIENCE_S)
        assert "has not answered for 1" in errors
        assert "Traceback" not in errors


def test_a_command_ends_although_a_writer_before_it_stands_still(
    folder: Path, disk: FrozenDisk
) -> None:
    app = enqueue_one(disk.url)
    disk.freeze()
    before = start(folder, disk.url, "queues", "pause", "default")
    wait_for(lambda: before.poll() is not None)
    after = start(folder, f"{disk.url}?timeout=1s", "queues", "resume", "default")
    wait_for(lambda: after.poll() is not None)
    assert (before.poll(), after.poll()) == (3, 3)
    disk.thaw()
    for command in (before, after):
        assert "Traceback" not in command.communicate(timeout=PATIENCE_S)[1]
    app.close()


def test_the_dashboard_and_the_http_api_answer_although_the_disk_stands_still(
    folder: Path, disk: FrozenDisk
) -> None:
    enqueue_one(disk.url).close()
    port = free_port()
    web = start(folder, f"{disk.url}?timeout=2s", "web", "--operate", "--port", str(port))
    here = f"http://127.0.0.1:{port}"
    wait_for(lambda: status_of(f"{here}/api/v1/queues") == 200)
    disk.freeze()
    asked = [(f"{here}/api/v1/queues/default/pause", "POST")] * 10
    asked += [(f"{here}/{path}", "GET") for path in ("jobs", "queues", "api/v1/queues")] * 10
    with ThreadPoolExecutor(len(asked)) as pool:
        statuses = list(pool.map(lambda one: status_of(one[0], method=one[1]), asked))
    assert set(statuses[:10]) == {503}  # those that read may succeed without the disk
    for _ in range(30):  # now at once
        assert status_of(f"{here}/jobs") == 503
    assert status_of(f"{here}/static/dashboard.css") == 200
    assert len(list(Path(f"/proc/{web.pid}/task").iterdir())) < 60
    disk.thaw()
    wait_for(lambda: status_of(f"{here}/api/v1/queues/default/resume", method="POST") == 200)
    assert status_of(f"{here}/jobs") == 200
    disk.freeze()
    assert status_of(f"{here}/api/v1/queues/default/pause", method="POST") == 503
    web.send_signal(SIGTERM)
    wait_for(lambda: web.poll() is not None or has_ended(web.pid))
    disk.thaw()
    _, errors = web.communicate(timeout=PATIENCE_S)
    assert web.returncode == -SIGTERM
    assert "Traceback" not in errors


def test_waits_for_results_end_although_the_disk_stands_still(
    folder: Path, disk: FrozenDisk
) -> None:
    (folder / "waiting.py").write_text(WAITING)
    programs = [
        run_program(folder, f"{disk.url}?timeout=2s", "waiting.py", what)
        for what in ("result", "aresult", "workflow")
    ]
    for program in programs:
        assert read_line(program) == "ready\n"
    disk.freeze()
    for program in programs:
        print(file=program.stdin, flush=True)
    for program in programs:
        line = read_line(program)
        assert line.startswith("StoreUnavailable The disk of ")
        assert "has not answered for 2s" in line
    disk.thaw()
    for program in programs:
        program.communicate(timeout=PATIENCE_S)
        assert program.returncode == 0


def test_a_program_leaves_its_worker_although_the_disk_stands_still(
    folder: Path, disk: FrozenDisk
) -> None:
    (folder / "embedding.py").write_text(EMBEDDING)
    program = run_program(folder, disk.url, "embedding.py")
    assert read_line(program) == "ready\n"
    disk.freeze()
    time.sleep(12)  # until a heartbeat is under way
    print(file=program.stdin, flush=True)
    assert "StoreUnavailable The worker has not stopped" in read_line(program)
    disk.thaw()
    program.communicate(timeout=PATIENCE_S)
    assert program.returncode == 0
