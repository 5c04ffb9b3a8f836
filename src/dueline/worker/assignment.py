"""Jobs that a runner is to run."""

from collections.abc import Sequence
from itertools import takewhile
from typing import Final, NamedTuple

from dueline.core.attempt import Done, Ending
from dueline.core.codec import encode_result
from dueline.core.job import Job
from dueline.tasks.handler import Context
from dueline.tasks.progress import Progress

NOTHING: Final = Done(b"")
"""How a job ends if its result is not kept."""

NULL: Final = Done(b"null")
"""How a job ends if its handler returned None."""


class Assignment(NamedTuple):
    """A job to run.

    Attributes:
      keep: Its result is stored.
      alone: Nothing else runs in its process.
      last: The progress that an earlier attempt reported.
      firm: No other job overtakes it, since its wait may have made it the most urgent.
      given: First arguments of a workflow step, a JSON array.
      chunk: The jobs that one call of a batch handler gets; `job` represents all of them.
      since_us: When the runner got it, by the monotonic clock.
      start_by_us: Latest start by the store's time; 0: until its claim ends.
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
    """Count the first of the new jobs that are more urgent than all waiting ones.

    Both are ordered by urgency.
    """
    try:
        bar = waiting[0].job.lane.priority
        if waiting[0].firm:
            return 0
    except IndexError:  # nothing waits, maybe since a moment ago
        return 0
    return sum(1 for _ in takewhile(lambda one: one.job.lane.priority > bar, coming))


def done_with(assignment: Assignment, context: Context | None, value: object) -> Ending:
    """Return the ending of a job that is done, with its result if that is kept."""
    if not assignment.keep or (context is not None and context.is_settled):
        return NOTHING
    return NULL if value is None else Done(encode_result(value, assignment.job.task))
