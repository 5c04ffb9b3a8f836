"""The application of `benchmarks.foresight`: handlers that wait as long as they are told.

Run as a program, it makes the calls of a workload at their times, and waits for all jobs.
"""

import os
import sys
import time
from datetime import UTC, datetime, timedelta

from benchmarks.foresight_workloads import WORKLOADS
from dueline import Context, Dueline, Retry

app = Dueline(os.environ["FORESIGHT_STORE"])
weights = os.environ.get("FORESIGHT_WEIGHTS", "")
app.queue(
    "bursts",
    weights={
        name: int(n) for name, _, n in (one.partition("=") for one in weights.split(",") if one)
    },
)
app.queue("steady")
app.queue("limits")
app.semaphore("warehouse", capacity=int(os.environ.get("FORESIGHT_WAREHOUSE", "3")))
app.rate("api", int(os.environ.get("FORESIGHT_API", "12")), per=1.0)


def _run(ctx: Context, ms: float, failures: int) -> None:
    time.sleep(ms / 1000)
    if ctx.attempt <= failures:
        raise ConnectionError("as recorded")


@app.task(name="steady.mail", queue="steady", retry=Retry(delays=[0.3, 0.8], attempts=4))
def mail(ctx: Context, ms: float, failures: int) -> None:
    """Run, and fail a number of times."""
    _run(ctx, ms, failures)


@app.task(name="bursts.report", queue="bursts")
def report(ctx: Context, ms: float, failures: int) -> None:
    """Run."""
    _run(ctx, ms, failures)


@app.task(name="limits.pack", queue="limits", limits=["warehouse"])
def pack(ctx: Context, ms: float, failures: int) -> None:
    """Run with a semaphore."""
    _run(ctx, ms, failures)


@app.task(name="limits.call", queue="limits", limits=["api"])
def call(ctx: Context, ms: float, failures: int) -> None:
    """Run with a rate."""
    _run(ctx, ms, failures)


TASKS = {one.name: one for one in (mail, report, pack, call)}


def call_all(name: str, seconds: float) -> None:
    """Make the calls of a workload, each at its time, and wait until no job is left."""
    begun, zero = time.monotonic(), datetime.now(UTC)
    for one in WORKLOADS[name](seconds).calls:
        time.sleep(max(0.0, begun + one.at - time.monotonic()))
        due = zero + timedelta(seconds=one.due) if one.due > one.at else None
        task = TASKS[one.task].using(tenant=one.tenant, due=due)
        task.enqueue(one.ms, one.failures)
    while app.admin.count(f"queue:{name}").jobs:
        time.sleep(0.3)


if __name__ == "__main__":
    call_all(sys.argv[1], float(sys.argv[2]))
