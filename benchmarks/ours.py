"""The project, through its public interface."""

from pathlib import Path
from typing import Literal

from dueline import Dueline
from dueline.api.task import Task

QUEUE = "bench"
TEXT = "x" * 100
BODY = f'["{TEXT}"]'.encode()


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


def drain(app: Dueline, queue: str = QUEUE) -> None:
    """Run one worker process with threads until nothing is due; starting and ending included."""
    app.run_worker([queue], burst=True)


def is_empty(app: Dueline, queue: str = QUEUE) -> bool:
    """Tell whether the queue holds no job."""
    return next(app.queues.engine.jobs_of(queue), None) is None
