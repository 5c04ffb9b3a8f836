"""Jobs that were asked to stop, and then fail in all ways, on each kind of store."""

import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from dueline import BatchOptions, Call, Context, Dueline, Job, Retry, Snooze, Throttled, pipeline
from dueline.core.errors import JobFailed
from tests.harness.addresses import IN_MEMORY, LONG_ON_CASSANDRA

WAIT_S = 60.0


def _refuse(_: Context) -> None:
    raise KeyError("no")


def _exit(_: Context) -> None:
    sys.exit(3)


def _overrun(_: Context) -> None:
    for _turn in range(6000):
        time.sleep(0.01)


def _snooze(_: Context) -> None:
    raise Snooze(3600)


def _throttle(_: Context) -> None:
    raise Throttled(0.1)


def _retry(ctx: Context) -> None:
    ctx.retry(after=3600)


def _give_up(ctx: Context) -> None:
    ctx.retry(attempts=1)


WAYS: dict[str, Callable[[Context], None]] = {
    handler.__name__[1:]: handler
    for handler in (_refuse, _exit, _overrun, _snooze, _throttle, _retry, _give_up)
}


@pytest.mark.slow
@pytest.mark.parametrize("url", [*IN_MEMORY, *LONG_ON_CASSANDRA], indirect=True)
def test_a_request_before_an_end_decides_what_it_is_called(url: str) -> None:
    """Let handlers ask for the end of their own jobs, which the worker has not read then."""
    # C19
    app = Dueline(url)
    app.semaphore("api", capacity=5)
    app.queue("once", deliver="at_most_once")

    @app.task(name="fail", timeout=3, retry=Retry(attempts=3, on=(OSError,)), limits=["api"])
    def fail(ctx: Context, way: str) -> str:
        app.job(ctx.job_id.hex()).cancel()
        if way != "done":
            WAYS[way](ctx)
        return way

    @app.task(name="once", queue="once")
    def once(ctx: Context, way: str) -> None:
        app.job(ctx.job_id.hex()).cancel()
        WAYS[way](ctx)

    @app.task(name="many", batch=BatchOptions(size=2, within=0), retry=Retry(attempts=1))
    def many(calls: list[Call[int]]) -> None:
        for call in calls:
            app.job(call.job_id.hex()).cancel()
        raise ValueError("all")

    @app.task(name="follow")
    def follow(way: str) -> str:
        return way

    try:
        with app.worker():
            jobs: dict[str, Job[Any]] = {way: fail.enqueue(way) for way in (*WAYS, "done")}
            jobs |= {f"once {way}": once.enqueue(way) for way in ("refuse", "exit", "snooze")}
            jobs |= {f"batch {n}": many.enqueue(n) for n in range(2)}
            parts = [pipeline(fail.step(way), follow.step()) for way in ("refuse", "done")]
            flows = [app.start(part) for part in parts]
            states = {way: _end_of(job) for way, job in jobs.items()}
            ends = [[_end_of(flow.step(n)) for n in (0, 1)] for flow in flows]
        assert states == {way: "done" if way == "done" else "cancelled" for way in jobs}
        assert ends == [["cancelled", "cancelled"], ["done", "done"]]
        assert app.admin.count("state:dead").jobs == 0
    finally:
        app.close()


def _end_of(job: Job[Any]) -> str:
    with suppress(JobFailed):
        job.result(timeout=WAIT_S)
    return job.status
