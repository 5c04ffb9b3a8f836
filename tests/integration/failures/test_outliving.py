"""Handlers that outlive their limits, or their worker (R9)."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from dueline import Context, Dueline, Retry
from dueline.admin.health import lost_slots
from dueline.coordination.worker_registry import live_workers

PATIENCE_S = 120.0

APP = """
import logging, threading, time
from dueline import Dueline, Retry

app = Dueline("sqlite:///jobs.db")
log = logging.getLogger("shop")


@app.task(retry=Retry(attempts=1), timeout=0.1)
def rows() -> None:
    while True:
        sum(i * i for i in range(200))
        log.info("row")


@app.task(retry=Retry(attempts=1), timeout=0.1)
def holds_the_log() -> None:
    logging.getLogger().handlers[0].acquire()
    open("held", "w").close()
    threading.Event().wait()
"""


def until(is_so: object) -> None:
    """Wait until something is so."""
    assert callable(is_so)
    give_up_s = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < give_up_s
        time.sleep(0.05)


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with an application."""
    (tmp_path / "shop.py").write_text(APP)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def enqueue(folder: Path, call: str) -> None:
    code = f"from shop import *\n{call}"
    subprocess.run([sys.executable, "-c", code], cwd=folder, check=True, timeout=PATIENCE_S)


def worker_of(folder: Path, *options: str) -> "subprocess.Popen[bytes]":
    """Start a worker whose log goes to a file."""
    with (folder / "log").open("wb") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "dueline", "worker", "shop:app", *options],
            cwd=folder, stdout=log, stderr=log,
        )  # fmt: skip


@pytest.mark.parametrize("options", [[], ["--processes", "2"]])
def test_busy_loggers_end_at_their_limit_and_the_worker_goes_on(
    shop: Path, options: list[str]
) -> None:
    enqueue(shop, "rows.enqueue_many([()] * 24)")
    worker = worker_of(shop, "--burst", *options)
    assert worker.wait(PATIENCE_S) == 0
    app = Dueline(f"sqlite:///{shop}/jobs.db")
    counts = app.admin.queues()[0].counts
    assert (counts.dead, counts.running, counts.ready) == (24, 0, 0)
    app.close()


def test_a_worker_whose_log_is_held_ends_within_its_drain(shop: Path) -> None:
    enqueue(shop, "holds_the_log.enqueue()")
    worker = worker_of(shop, "--drain", "1s")
    until((shop / "held").exists)
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(PATIENCE_S) == 128 + signal.SIGTERM


def test_a_slot_that_is_lost_is_named(tmp_path: Path) -> None:
    app, go = Dueline(f"sqlite:///{tmp_path}/jobs.db"), threading.Event()

    @app.task(name="waits", timeout=0.1, retry=Retry(attempts=1))
    def waits() -> str:
        go.wait(PATIENCE_S)
        return "all"

    job = waits.enqueue()
    with app.worker(concurrency=2):
        until(lambda: any(one.lost for one in live_workers(app.engine)))
        (check,) = lost_slots(app.engine, live_workers(app.engine))
        assert (check.verdict, job.id in check.finding) == ("warning", True)
        assert "1 of 2 slots are lost" in check.finding
        go.set()
        until(lambda: job.status == "dead")
        until(lambda: not any(one.lost for one in live_workers(app.engine)))
    app.close()


@pytest.mark.parametrize("kind", ["plain", "checks", "loops"])
def test_a_job_is_not_run_beside_its_first_run_after_the_drain(tmp_path: Path, kind: str) -> None:
    app = Dueline(f"sqlite:///{tmp_path}/jobs.db")
    go, runs, now, most = threading.Event(), [0], [0], [0]

    def enter() -> None:
        runs[0] += 1
        now[0] += 1
        most[0] = max(most[0], now[0])

    def work(ctx: Context | None) -> None:
        enter()
        try:
            if runs[0] > 1:
                return
            if kind == "plain":
                go.wait(PATIENCE_S)
            while kind != "plain" and not go.is_set():
                time.sleep(0.01)
                if kind == "checks" and ctx is not None:
                    ctx.check_cancelled()
        finally:
            now[0] -= 1

    @app.task(name="plain")
    def plain() -> None:
        work(None)

    @app.task(name="checks")
    def checks(ctx: Context) -> None:
        work(ctx)

    job = (plain if kind == "plain" else checks).enqueue()
    with app.worker(drain=0.1):
        until(lambda: runs[0] == 1)
    with app.worker():
        if kind == "plain":  # its claim is kept
            time.sleep(1)
            assert (runs[0], job.status) == (1, "running")
            go.set()
        until(lambda: job.status == "done")
    assert most[0] == 1
    assert runs[0] == (1 if kind == "plain" else 2)
    app.close()


EMBEDDED = """
import sys, threading, time
sys.path.insert(0, ".")
from dueline import Dueline
app = Dueline("sqlite:///jobs.db")
began = threading.Event()

@app.task(name="stuck")
def stuck() -> None:
    began.set()
    threading.Event().wait()

job = stuck.enqueue()
with app.worker(drain=0.1):
    began.wait()
print(job.status)
"""


def test_a_program_that_ends_releases_what_outlasted_its_worker(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(EMBEDDED)
    ended = subprocess.run(
        [sys.executable, str(program)],
        cwd=tmp_path, env={**os.environ}, capture_output=True, text=True, timeout=PATIENCE_S,
        check=True,
    )  # fmt: skip
    assert ended.stdout == "running\n"
    app = Dueline(f"sqlite:///{tmp_path}/jobs.db")
    counts = app.admin.queues()[0].counts
    assert (counts.ready, counts.running, counts.dead) == (1, 0, 0)
    app.close()
