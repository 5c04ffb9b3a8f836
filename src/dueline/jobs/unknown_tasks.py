"""Tasks that no live worker of a queue knows, and jobs whose arguments none of them can take.

A worker that claims a job of a task that it does not know moves the job to a lane of that task
(rule P10). Only workers that know the task claim from there, so the job waits for one, and is not
claimed again until there is one. A job whose arguments do not fit waits in the same way, for a
worker with another signature of the task (rule P13).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from dueline.coordination.worker_registry import KnownTasks, Presence
from dueline.core.engine import Engine
from dueline.core.job import Job
from dueline.core.job_status import status_of
from dueline.core.lane import NEEDS_MARK, Lane, bucket_of, read_key, task_of
from dueline.core.text import one_line
from dueline.core.worker_needs import Has, lacking


@dataclass(frozen=True, slots=True)
class KnownByAny:
    """Contains the keys of tasks that at least one of some workers can run."""

    each: Sequence[KnownTasks]

    def unmet(self, lane: Lane) -> str:
        """Return what none of them has that a lane needs, in words; empty if one has all."""
        return unmet_text(lane, [known.has for known in self.each])

    def __contains__(self, key: object) -> bool:
        return any(key in known for known in self.each)


def known_tasks(
    queue: str, workers: Iterable[Presence], also: Iterable[KnownTasks] = ()
) -> KnownByAny:
    """Return the tasks that workers of a queue know, unless these claim nothing, and others."""
    serving = [worker.known for worker in workers if queue in worker.queues and worker.is_claiming]
    return KnownByAny([*serving, *also])


def unmet_text(lane: Lane, each: Sequence[Has]) -> str:
    """Return what no live worker has that the jobs of a lane need; empty if one has all.

    Args:
        lane: The lane.
        each: What each worker has.
    """
    missing = [set(lacking(lane, has)) for has in each]
    if not all(missing):
        return ""
    if nobody := sorted(set.intersection(*missing) if missing else lacking(lane, {})):
        return f"no live worker has {', '.join(nobody)}"
    return f"no live worker has all of {', '.join(sorted(set.union(*missing)))} at once"


def unknown_text(key: str) -> str:
    """Return the words for a task that no live worker knows, the same everywhere.

    Args:
        key: The key of the task, see `task_key`.
    """
    task, codec, refused, _ = read_key(key)
    if refused:
        return f"no live worker can take the arguments of a job of task {one_line(task)}"
    with_codec = f" and the codec {codec} of its arguments" if codec else ""
    return f"no live worker knows task {one_line(task)}{with_codec}"


def misfit_text(job: Job) -> str:
    """Return why the arguments of a job that waits for another version of its task do not fit.

    Empty for other jobs.
    """
    is_refused = bool(read_key(task_of(job.lane)).refused)
    return f": {one_line(job.error).rstrip('.')}" if is_refused and job.error else ""


class UnknownTask(NamedTuple):
    """A task of a ready job that no live worker can run.

    Attributes:
      since_us: Since when the first job of its first lane has waited.
      text: What no worker can do, in words.
    """

    since_us: int
    text: str


def unknown_tasks(
    engine: Engine, queue: str, known: KnownByAny, now_us: int
) -> dict[str, UnknownTask]:
    """Return the tasks of ready jobs that a worker of a queue met and none of its workers knows.

    Needs that none of its workers has count as tasks, too.

    Args:
        engine: The engine.
        queue: The queue.
        known: The tasks that are known, see `known_tasks`.
        now_us: The current time.

    Returns:
        What is unknown, by the key of the task, without the end of a wait.
    """
    tasks: dict[str, UnknownTask] = {}
    for page in engine.pages_of(queue, bucket_of(now_us, engine.catalog.settings(queue).width_us)):
        for _, lane in page.pointers:
            key = task_of(lane)
            needs = known.unmet(lane) if NEEDS_MARK in lane.tenant and known.each else ""
            task = read_key(key)._replace(until_us=0).text if key else ""
            is_known = not task or key in known
            place = needs if is_known else task
            if not place or place in tasks or page.heads.get(lane, 0) is None:
                continue
            for row in engine.store.scan(lane, after=None, until_us=now_us, limit=1).jobs:
                if status_of(row, now_us) == "ready":
                    text = needs if is_known else unknown_text(key) + misfit_text(row)
                    tasks[place] = UnknownTask(row.at_us, text)
    return tasks
