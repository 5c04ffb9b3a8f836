"""The project, through its public interface."""

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from dueline import Dueline
from dueline.api.task import Task
from dueline.core.attempt import Attempt
from dueline.core.codec import JSON, encode
from dueline.core.ids import Ids
from dueline.core.job import Job
from dueline.core.lane import Lane, bucket_of
from dueline.core.process_identity import worker_name

QUEUE = "bench"
_PAGE = 500


def sqlite(path: Path, synchronous: str) -> str:
    """Give the address of a queue file."""
    return f"sqlite:///{path}?synchronous={synchronous}"


def open_app(
    url: str, queue: str = QUEUE, *, history: Literal["attempts", "off"]
) -> tuple[Dueline, Task[[str], None]]:
    """Make an application on a new queue, with one task that does nothing."""
    app = Dueline(url)
    app.queue(queue, history=history, keep=0)

    @app.task(name="bench.noop", queue=queue)
    def noop(text: str) -> None:
        del text

    app.queues  # noqa: B018  (makes or reaches the queue, as the raw side has done by now)
    return app, noop


def enqueue(task: Task[[str], None], count: int, text: str) -> None:
    """Enqueue in bulk, 500 a write, which is the default."""
    task.enqueue_many([(text,)] * count)


def enqueue_singly(task: Task[[str], None], count: int, text: str) -> None:
    """Enqueue one by one, each durable when its call returns."""
    call: Callable[[str], object] = task.enqueue
    for _ in range(count):
        call(text)


def enqueue_at_once(task: Task[[str], None], callers: int, each: int, text: str) -> None:
    """Enqueue one by one from several threads at once."""
    threads = [
        threading.Thread(target=enqueue_singly, args=(task, each, text)) for _ in range(callers)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def enqueue_for_each(app: Dueline, tenants: int, body: bytes) -> None:
    """Store a job for each of many tenants, as `enqueue` makes it, many a write."""
    now_us = app.queues.engine.time.earliest_us()
    bucket = bucket_of(now_us, app.queues.engine.catalog.settings(QUEUE).width_us)
    jobs = [
        Job(Lane(QUEUE, 0, bucket, 0, f"tenant{number}"), now_us, job_id, 0, now_us, now_us,
            "bench.noop", JSON, body, b"", now_us)
        for number, job_id in enumerate(app.queues.engine.ids.many(tenants, now_us))
    ]  # fmt: skip
    for start in range(0, tenants, _PAGE):
        app.queues.engine.store.add(jobs[start : start + _PAGE])


def drain(app: Dueline, queue: str = QUEUE) -> None:
    """Run one worker process with threads until nothing is due; starting and ending included."""
    app.run_worker([queue], burst=True)


def history_body() -> bytes:
    """Write an attempt of a drain, as the history keeps it."""
    now_us = time.time_ns() // 1000
    job_id = Ids().one(now_us).hex()
    return encode(
        Attempt(
            job_id, "bench.noop", QUEUE, "", 0, now_us, now_us, now_us, now_us, now_us,
            "done", "", worker_name(), 1,
        )
    )  # fmt: skip


def is_empty(app: Dueline, queue: str = QUEUE) -> bool:
    """Tell whether the queue holds no job."""
    return next(app.queues.engine.jobs_of(queue), None) is None
