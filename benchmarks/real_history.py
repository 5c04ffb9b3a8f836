"""`python -m benchmarks.real_history URL JOBS`: make a history by running jobs.

Every job is enqueued and recorded (`history="all"`), most in bulk calls and some alone; some are
retried, some end in the dead-letter list, and the first worker is killed while it runs jobs.
"""

import os
import signal
import subprocess
import sys
import time
from typing import Final

from dueline import Context, Dueline, Retry
from dueline.api.task import Task

QUEUE: Final = "mail"
SHARDS: Final = 8
BULK: Final = 1000
ALONE: Final = 50
"""One job in so many is enqueued by a call of its own."""

FAILS_ONCE: Final = 20
"""One job in so many fails at its first attempt."""

DIES: Final = 400
"""One job in so many fails at every attempt."""

LEASE_S: Final = 3.0
TENANTS: Final = ("acme", "zeta", "")


def open_app(url: str) -> tuple[Dueline, Task[[int], int]]:
    """Open an application on the queue, with one task."""
    app = Dueline(url)
    app.queue(QUEUE, history="all", shards=SHARDS, lease=LEASE_S)

    @app.task(name="shop.charge", queue=QUEUE, retry=Retry(attempts=3, base=0.01, cap=0.05))
    def charge(context: Context, order: int) -> int:
        if order % DIES == 1 or (order % FAILS_ONCE == 1 and context.attempt == 1):
            raise OSError(f"The bank did not answer for order {order}.")
        return order

    return app, charge


def fill(url: str, jobs: int) -> None:
    """Make the history of some jobs."""
    app, charge = open_app(url)
    alone = jobs // ALONE
    for start in range(0, jobs - alone, BULK):
        tenant = TENANTS[start // BULK % len(TENANTS)]
        numbers = range(start, min(start + BULK, jobs - alone))
        charge.using(tenant=tenant).enqueue_many([(number,) for number in numbers])
    for number in range(jobs - alone, jobs):
        charge.enqueue(number)
    app.close()
    killed = work(url)
    time.sleep(1.0 + jobs / 100_000)
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    time.sleep(LEASE_S)
    if work(url).wait():
        raise RuntimeError("the worker failed")


def work(url: str) -> "subprocess.Popen[bytes]":
    """Start a worker that runs until nothing is due."""
    command = [sys.executable, "-m", "benchmarks.real_history", url]
    return subprocess.Popen(command, stderr=subprocess.DEVNULL)  # of failures, which are meant


def main() -> None:
    """Fill a store, or work on one."""
    url, *jobs = sys.argv[1:]
    if jobs:
        fill(url, int(jobs[0]))
        return
    app, _ = open_app(url)
    app.run_worker([QUEUE], burst=True)
    app.close()


if __name__ == "__main__":
    os.environ.setdefault("PYTHONWARNINGS", "ignore")
    main()
