"""Waiting for results, and workers inside a program without an event loop."""

import logging
import time
from pathlib import Path
from typing import Any

import pytest

from dueline import Conflict, Context, Dueline, Job
from dueline.coordination.worker_registry import live_workers
from dueline.core.lane import task_of
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
