"""Events of a worker for hooks."""

from collections.abc import Collection, Sequence

from dueline.core.attempt import Cancelled, Ended, Ending, Failed, Snoozed
from dueline.core.call_options import durable_place
from dueline.core.deadlines import late_us
from dueline.core.job import Claim, Job
from dueline.core.lane import tenant_of
from dueline.core.user_code import text_of
from dueline.tasks.hooks import ClaimEvent, Hooks, RanEvent, RunEvent, SettleEvent
from dueline.tasks.raised import Cancel, Throttled


def refused_by(
    hooks: Hooks, jobs: Sequence[Job], gone: Collection[Claim], now_us: int
) -> list[Ended]:
    """Return endings for those claimed jobs that a hook postpones or cancels.

    Args:
        hooks: The hooks.
        jobs: The jobs, whose handlers were not called.
        gone: Claims of those that do not start anyway.
        now_us: The current time.
    """
    refused: list[Ended] = []
    for job in jobs:
        if job.claim() in gone or durable_place(job) is not None:
            continue
        lane = job.lane
        event = ClaimEvent(
            job.id.hex(), job.task, lane.queue, tenant_of(lane), lane.priority, job.errors + 1,
            job.fence, job.due_us, job.claimed_us,
        )  # fmt: skip
        error = hooks.call_claimed(event)
        if isinstance(error, Cancel):
            refused.append(Ended(job, Cancelled(text_of(error)), 0, now_us))
        elif error is not None:
            throttles = isinstance(error, Throttled)
            refused.append(Ended(job, Snoozed(error.after_us, throttles), 0, now_us))
    return refused


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
