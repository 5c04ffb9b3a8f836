"""Workers of several versions of an application, in threads."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from dueline import Dueline, Job
from dueline.api.job_handle import parse_id
from dueline.api.launch import make_worker, run
from dueline.api.worker_plan import plan_of
from dueline.core.job import Job as JobRow

PATIENCE_S = 30


@contextmanager
def working(app: Dueline) -> Iterator[None]:
    """Run a worker of an application in a thread while the block runs."""
    plan = plan_of(app.serving(None), 2, 25, 0)
    worker = make_worker(app, plan)
    thread = threading.Thread(target=run, args=(app, plan, worker))
    thread.start()
    try:
        yield
    finally:
        worker.stop()
        thread.join()


def until(is_true: Callable[[], bool]) -> None:
    """Wait until something is true."""
    end_s = time.monotonic() + PATIENCE_S
    while not is_true():
        assert time.monotonic() < end_s, "it takes too long"
        time.sleep(0.01)


def rows_of(app: Dueline, jobs: Sequence[Job[Any]]) -> list[JobRow]:
    """Read the rows of jobs that have not ended."""
    rows = app.store.find([parse_id(job.id) for job in jobs])
    return [row for row in rows if row is not None]
