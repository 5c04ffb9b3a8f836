"""Waiting for results, and workers inside a program without an event loop."""

import asyncio
import logging
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from dueline import Conflict, Context, Dueline, Job, Retry
from dueline.coordination.worker_registry import live_workers
from dueline.core import clock
from dueline.core.clock import SECOND_US
from dueline.core.job import JobId
from dueline.core.lane import task_of
from dueline.jobs.queue import Found
from tests.harness.clocks import HandClock

STORES = ("memory://", "memory://?transactional=off", "sqlite:///jobs.db")


class Clock(HandClock):
    """Time passes when a caller sleeps."""

    def sleep(self, seconds: float) -> None:
        self.advance(seconds)


@pytest.mark.parametrize("url", STORES)
def test_a_caller_reads_in_the_log_that_no_worker_serves_the_queue(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    # the table of the first hour
    monkeypatch.chdir(tmp_path)
    app = Dueline(url, clock=Clock())
    job = app.task(name="add", queue="mail")(lambda: 1).enqueue()
    with caplog.at_level(logging.WARNING), pytest.raises(TimeoutError):
        job.result(timeout=9)
    assert caplog.messages == []
    with caplog.at_level(logging.WARNING), pytest.raises(TimeoutError):
        job.result(timeout=60)
    said = f"job {job.id} waits: no live worker serves the queue mail"
    assert caplog.messages == [said]
    app.close()


@pytest.mark.parametrize("url", STORES)
def test_a_worker_of_the_same_process_wakes_the_threads_that_wait(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody looks at the store for ten minutes."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(clock, "_WAIT_S", (600.0, 600.0))
    app, begins, has_begun = Dueline(url), threading.Event(), threading.Event()
    calls: list[int] = []

    def add() -> int:
        has_begun.set()
        begins.wait(60)
        calls.append(1)
        if len(calls) == 1:
            raise ValueError("again")
        return len(calls)

    task = app.task(name="add", retry=Retry(base=0.01))(add)
    results: list[int] = []
    with app.worker():
        job = task.enqueue()
        assert has_begun.wait(60)
        threads = [
            threading.Thread(target=lambda: results.append(job.result()), daemon=True)
            for _ in range(3)
        ]
        for thread in threads:
            thread.start()
        begins.set()
        for thread in threads:
            thread.join(60)
    assert results == [2, 2, 2]
    assert app.queues.engine.endings._waiting == {}
    app.close()


@pytest.mark.parametrize(("timeout", "reads"), [(0, 1), (1, 1), (5, 1), (5.1, 2), (12, 3)])
def test_a_wait_that_is_over_reads_a_slow_store_no_more(
    monkeypatch: pytest.MonkeyPatch, timeout: float, reads: int
) -> None:
    """Each read takes five seconds."""
    clock = Clock()
    app = Dueline("memory://", clock=clock)
    job = app.task(name="add")(lambda: 1).enqueue()
    find, found = app.queues.find, []

    def find_slowly(job_id: JobId) -> Found:
        clock.advance(5)
        found.append(job_id)
        return find(job_id)

    monkeypatch.setattr(app.queues, "find", find_slowly)
    began_us = clock.monotonic_us()
    with pytest.raises(TimeoutError):
        job.result(timeout=timeout)
    assert len(found) == reads
    assert clock.monotonic_us() - began_us <= (timeout + 5) * SECOND_US
    found.clear()
    with pytest.raises(TimeoutError):
        asyncio.run(job.aresult(timeout=min(timeout, 1)))
    assert len(found) == 1
    app.close()


def _is_moved(job: Job[Any]) -> bool:
    row = job._read()[1].row
    return row is not None and bool(task_of(row.lane))


def test_it_says_that_the_task_is_unknown(caplog: pytest.LogCaptureFixture) -> None:
    app = Dueline("memory://", clock=Clock())
    job = app.unchecked("shop.send", queue="mail").enqueue()
    with app.worker(["mail"]), caplog.at_level(logging.WARNING, "dueline"):
        while not (live_workers(app.engine) and _is_moved(job)):
            time.sleep(0.005)  # its thread registers it, and moves the job
        job._report_wait(job._read()[1])
    assert f"job {job.id} waits: no live worker knows task shop.send" in caplog.messages


def test_a_worker_runs_as_long_as_the_block(tmp_path: Path) -> None:
    app = Dueline(f"sqlite:///{tmp_path}/jobs.db")

    @app.task(name="plain")
    def plain(ctx: Context) -> int:
        return ctx.attempt

    @app.task(name="slow")
    async def slow() -> int:
        return 2

    worker = app.worker()
    with worker:
        jobs: list[Any] = [plain.enqueue(), slow.enqueue()]
        assert [job.result(timeout=60) for job in jobs] == [1, 2]
    assert plain.enqueue().status == "ready"
    with pytest.raises(Conflict, match="started before"), worker:
        pass
    app.close()
