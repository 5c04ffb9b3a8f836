"""Facts about the demo, read from the queue."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dueline import Job, JobFailed, NotFound
from dueline.core.attempt import Attempt
from dueline.core.lane import dead_queue
from dueline.jobs.history import attempts
from examples.demo.files import Planned
from examples.demo.tasks import QUEUE, Counts, Trouble, app
from examples.demo.workers import WorkerCommand


@dataclass(frozen=True, slots=True)
class Story:
    """Record of the demo.

    jobs: files by job id; handles: the same jobs. killed: the killed worker. held: jobs that
    it held when it was killed. took_s: from the first enqueue until the last job ended.
    """

    jobs: Mapping[str, Planned]
    handles: Sequence[Job[Counts]]
    killed: WorkerCommand
    held: Sequence[str]
    took_s: float

    def with_trouble(self, trouble: Trouble) -> Sequence[str]:
        """Return the jobs that were chosen for this trouble."""
        return [job for job, one in self.jobs.items() if one.trouble is trouble]


@dataclass(frozen=True, slots=True)
class Facts:
    """State of the jobs in the queue, by id.

    results: return values of the handlers. dead: errors. waiting: jobs with neither.
    attempts: the history.
    """

    results: Mapping[str, Counts]
    dead: Mapping[str, str]
    waiting: Sequence[str]
    attempts: Sequence[Attempt]


def collect(story: Story) -> Facts:
    """Read results, dead-letter jobs, waiting jobs and the history."""
    queues = app.queues
    dead = {job.id.hex(): job.error for job in queues.engine.jobs_of(dead_queue(QUEUE))}
    waiting = {job.id.hex() for job in queues.engine.jobs_of(QUEUE)}
    history = attempts(
        queues.engine.store, QUEUE, queues.engine.catalog.settings(QUEUE).shards_read
    )
    return Facts(
        results={job.id: counts for job in story.handles if (counts := _result(job))},
        dead={job: dead[job] for job in story.jobs if job in dead},
        waiting=[job for job in story.jobs if job in waiting],
        attempts=[one for one in history if one.job in story.jobs],
    )


def _result(job: Job[Counts]) -> Counts | None:
    try:
        return job.result(timeout=0)
    except (JobFailed, NotFound, TimeoutError):  # dead, lost, waiting
        return None
