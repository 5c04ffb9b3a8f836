"""Jobs that are to be run."""

from collections.abc import Sequence
from itertools import takewhile
from typing import Final, NamedTuple

from dueline.core.attempt import Done, Ending
from dueline.core.codec import encode_result
from dueline.core.job import Job
from dueline.tasks.handler import Context
from dueline.tasks.progress import Progress

NOTHING: Final = Done(b"")
"""How a job ended of which no result is wanted."""


class Assignment(NamedTuple):
    """A job to run. keep: its result is wanted. alone: with nothing beside it in its process.

    last: what an earlier attempt said of its progress.
    firm: nothing overtakes it any more, since its wait may have made it the most urgent.
    given: the first arguments of a step of a workflow, a JSON array.
    chunk: the jobs that are handed to one call of their function; `job` stands for all of them.
    since_us: when the runner got it, by the monotonic clock. start_by_us: it must not start
    later, by the store's time; 0: as long as its claim lasts.
    """

    job: Job
    keep: bool
    alone: bool = False
    last: Progress | None = None
    firm: bool = False
    given: bytes = b""
    chunk: "Sequence[Assignment]" = ()
    since_us: int = 0
    start_by_us: int = 0


def overtaking(coming: Sequence[Assignment], waiting: Sequence[Assignment]) -> int:
    """Count the first of what comes that are more urgent than all that wait.

    Both are in the order of urgency.
    """
    try:
        bar = waiting[0].job.lane.priority
        if waiting[0].firm:
            return 0
    except IndexError:  # nothing waits, maybe since a moment ago
        return 0
    return sum(1 for _ in takewhile(lambda one: one.job.lane.priority > bar, coming))


def done_with(assignment: Assignment, context: Context | None, value: object) -> Ending:
    """Say that a job is done; its result is written where it is wanted."""
    if not assignment.keep or (context is not None and context.is_settled):
        return NOTHING
    return Done(encode_result(value, assignment.job.task))
