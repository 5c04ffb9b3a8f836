"""Tasks that no live worker of a queue knows.

A worker that claims a job of a task that it does not know moves the job to a lane of that task
(rule P10). Only workers that know the task claim from there, so the job waits for one, and is not
claimed again until there is one.
"""

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass

from dueline.coordination.worker_registry import KnownTasks, Presence
from dueline.core.engine import Engine
from dueline.core.job_status import status_of
from dueline.core.lane import CODEC_MARK, bucket_of, task_of
from dueline.core.text import one_line


@dataclass(frozen=True, slots=True)
class KnownByAny:
    """Contains the keys of tasks that at least one of some workers can run."""

    each: Sequence[KnownTasks]

    def __contains__(self, key: object) -> bool:
        return any(key in known for known in self.each)


def known_tasks(
    queue: str, workers: Iterable[Presence], also: Iterable[KnownTasks] = ()
) -> KnownByAny:
    """Return the tasks that workers of a queue know, unless these claim nothing, and others."""
    serving = [worker.known for worker in workers if queue in worker.queues and worker.is_claiming]
    return KnownByAny([*serving, *also])


def unknown_text(key: str) -> str:
    """Return the words for a task that no live worker knows, the same everywhere.

    Args:
        key: The key of the task, see `task_key`.
    """
    task, _, codec = key.partition(CODEC_MARK)
    with_codec = f" and the codec {codec} of its arguments" if codec else ""
    return f"no live worker knows task {one_line(task)}{with_codec}"


def unknown_tasks(engine: Engine, queue: str, known: Container[str], now_us: int) -> dict[str, int]:
    """Return the tasks of ready jobs that a worker of a queue met and none of its workers knows.

    Args:
        engine: The engine.
        queue: The queue.
        known: The tasks that are known, see `known_tasks`.
        now_us: The current time.

    Returns:
        Keys of tasks, each with the time since which the first job of its first lane has waited.
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
