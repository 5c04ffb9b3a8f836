"""Events of a worker for hooks."""

from dueline.core.attempt import Ending, Failed
from dueline.core.deadlines import late_us
from dueline.core.job import Job
from dueline.tasks.hooks import RanEvent, RunEvent, SettleEvent


def run_event(job: Job) -> RunEvent:
    """Return the event of a handler that is about to be called."""
    return RunEvent(job.id.hex(), job.task, job.lane.queue, job.errors + 1, job.fence)


def ran_event(job: Job, ending: Ending) -> RanEvent:
    """Return the event of a handler that ended."""
    error = f"{ending.error_type}: {ending.message}" if isinstance(ending, Failed) else ""
    attempt = job.errors + 1
    word = type(ending).__name__
    return RanEvent(job.id.hex(), job.task, job.lane.queue, attempt, job.fence, word, error)


def settled_event(
    job: Job, error: str, again_us: int | None = None, *, ended_us: int = 0
) -> SettleEvent:
    """Return the event of an attempt whose ending is stored."""
    return SettleEvent(
        job.id.hex(),
        job.task,
        job.lane.queue,
        job.errors + 1,
        job.fence,
        error,
        again_us,
        late_us(job.lane.priority, ended_us),
    )
