"""A store with a past of all kinds, made by real workers of which one is killed.

`python -m tests.unit.spark.busy URL` is a worker.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dueline import BatchOptions, Call, Dueline, Retry, Snooze, group, pipeline, wait_for
from dueline.core.job import JobId, State

LEASE_S = 0.4
QUICK = Retry(attempts=3, base=0.001, cap=0.002)
VICTIM_S = 30.0
ROOT = Path(__file__).parents[3]


def application(url: str) -> tuple[Dueline, Mapping[str, Any]]:
    """Make the application, and its tasks by name."""
    app = Dueline(url)
    for name in ("mail", "bills"):
        app.queue(name, history="all", shards=2, lease=LEASE_S)
    app.semaphore("press", capacity=2)

    @app.task(name="count", queue="mail", retry=QUICK)
    def count(number: int) -> int:
        if number % 10 == 0:
            raise ValueError("each tenth fails always")
        return number

    tried: set[int] = set()

    @app.task(name="again", queue="mail", retry=QUICK)
    def again(number: int) -> None:
        if number not in tried:
            tried.add(number)
            raise ValueError("once")

    @app.task(name="later", queue="bills")
    def later(number: int) -> None:
        if number not in tried:
            tried.add(number)
            raise Snooze(0.001)

    @app.task(name="print", queue="bills", limits=["press"])
    def print_(page: int) -> str:
        return f"page {page}"

    @app.task(name="many", queue="bills", batch=BatchOptions(size=5, within=0.01))
    def many(numbers: list[Call[int]]) -> None:
        assert numbers

    @app.task(name="stuck", queue="mail", retry=QUICK)
    def stuck(marker: str) -> None:
        if not Path(marker).exists():  # the first time only
            Path(marker).touch()
            time.sleep(VICTIM_S)

    @app.task(name="add", queue="bills", retry=Retry(attempts=1))
    def add(numbers: list[int]) -> int:
        return sum(numbers)

    tasks = (count, again, later, print_, many, stuck, add)
    return app, {task.name: task for task in tasks}


@contextmanager
def killed_worker(url: str, has_started: Callable[[], bool]) -> Iterator[None]:
    """Run a worker until it has noted that a job has started, then kill it."""
    worker = subprocess.Popen([sys.executable, "-m", "tests.unit.spark.busy", url], cwd=ROOT)
    try:
        yield
        until = time.monotonic() + VICTIM_S
        while not has_started() and time.monotonic() < until:
            time.sleep(0.01)
        assert has_started(), "no job came to the worker"
    finally:
        os.kill(worker.pid, signal.SIGKILL)
        worker.wait()


def busy_store(folder: Path) -> Dueline:
    """Make a store: jobs that were done, failed, died, were redriven, cancelled, and so on."""
    url = f"sqlite:///{folder / 'jobs.db'}?synchronous=NORMAL"
    app, tasks = application(url)
    count = tasks["count"]
    stuck = tasks["stuck"].using(priority=9).enqueue(str(folder / "stuck"))

    def has_started() -> bool:
        (row,) = app.store.find([JobId(bytes.fromhex(stuck.id))])
        return row is not None and row.state == State.STARTED

    with killed_worker(url, has_started):
        count.enqueue_many([(number,) for number in range(1, 80)])
    tasks["again"].enqueue_many([(number,) for number in range(30)])
    waiting = count.using(after=3600).enqueue_many([(number,) for number in range(30)])
    for job in waiting[:5]:
        job.cancel()
    for job in waiting[5:10]:
        job.reschedule(after=0)
    for job in waiting[10:15]:
        job.change(priority=3)
    for job in waiting[15:18]:
        job.retry()  # now
    count.using(tenant="acme", priority=4).enqueue_many([(number,) for number in range(1, 40)])
    count.using(expires=0.001).enqueue(1)
    tasks["later"].enqueue_many([(number,) for number in range(100, 110)])
    tasks["print"].enqueue_many([(page,) for page in range(10)])
    tasks["many"].enqueue_many([(number,) for number in range(12)])
    parts = group(count.step(number) for number in (1, 2, 3))
    app.start(pipeline(parts, tasks["add"].step()))
    app.start(pipeline(count.step(10), count.step()))  # its first step dies
    signalled = app.start(pipeline(wait_for("ready"), count.step()))
    run_dry(app)
    signalled.signal("ready", 4)
    for job in list(app.queues.engine.jobs_of("mail!dead"))[:4]:
        app.job(job.id.hex()).retry()
    app.pause("mail", task="again")
    tasks["again"].enqueue_many([(number,) for number in range(5)])
    run_dry(app)
    app.resume("mail", task="again")
    run_dry(app)
    return app


def run_dry(app: Dueline) -> None:
    """Run what is due, until the leases of a dead worker have ended, too."""
    until = time.monotonic() + 2 * LEASE_S
    while time.monotonic() < until:
        app.run_worker(burst=True)
        time.sleep(LEASE_S / 4)


if __name__ == "__main__":
    application(sys.argv[1])[0].run_worker()
