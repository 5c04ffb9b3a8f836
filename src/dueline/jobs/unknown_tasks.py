"""Tasks that no live worker of a queue knows.

A worker that claims a job of a task that it does not know moves the job to a lane of that task
(rule P10). Only workers that know the task claim from there, so the job waits for one, and is not
claimed again until there is one.
"""

from collections.abc import Collection, Iterable

from dueline.coordination.worker_registry import Presence
from dueline.core.engine import Engine
from dueline.core.job_status import status_of
from dueline.core.lane import bucket_of, task_of
from dueline.core.text import one_line


def known_tasks(queue: str, workers: Iterable[Presence]) -> frozenset[str]:
    """Return the tasks that workers of a queue know, other than those that claim nothing."""
    serving = (one for one in workers if queue in one.queues and one.is_claiming)
    return frozenset(task for one in serving for task in one.tasks)


def unknown_text(task: str) -> str:
    """Return the words for a task that no live worker knows, the same everywhere."""
    return f"no live worker knows task {one_line(task)}"


def unknown_tasks(
    engine: Engine, queue: str, known: Collection[str], now_us: int
) -> dict[str, int]:
    """Return the tasks of ready jobs that a worker of a queue met and none of its workers knows.

    Args:
        engine: The engine.
        queue: The queue.
        known: The tasks that are known, see `known_tasks`.
        now_us: The current time.

    Returns:
        The tasks, each with the time since which the first job of its first lane has waited.
    """
    found: dict[str, int] = {}
    for page in engine.pages_of(queue, bucket_of(now_us, engine.catalog.settings(queue).width_us)):
        for _, lane in page.pointers:
            task = task_of(lane)
            if not task or task in known or task in found or page.heads.get(lane, 0) is None:
                continue
            for row in engine.store.scan(lane, after=None, until_us=now_us, limit=1).jobs:
                if status_of(row, now_us) == "ready":
                    found[task] = row.at_us
    return found
