"""Jobs that a runner is to run."""

from collections.abc import Callable, Sequence
from itertools import takewhile
from typing import Final, NamedTuple, TypeVar

from dueline.core.attempt import Done, Ending, GivenBack
from dueline.core.job import Job
from dueline.core.lane import task_of, tenant_of
from dueline.durable.suspension import Suspended
from dueline.tasks.arguments import Misfit
from dueline.tasks.handler import Context, Handler
from dueline.tasks.progress import Progress

Read = TypeVar("Read")

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
    """Count the first of the new jobs that go before all waiting ones.

    They are more urgent; or functions that have begun, while new jobs of their tenant wait, with
    which they take turns by claims (rule D16); or were due earlier in the queue of the first one
    that waits, for the same tenant: such a job came late, since its transaction took long. Both are
    ordered by urgency.
    """
    try:
        first = waiting[0]
    except IndexError:  # nothing waits, maybe since a moment ago
        return 0
    if first.firm:
        return 0
    bar, due_us = first.job.lane, first.job.pos_us

    def goes_before(assignment: Assignment) -> bool:
        lane = assignment.job.lane
        if lane.priority != bar.priority:
            return lane.priority > bar.priority
        if lane.queue != bar.queue or tenant_of(lane) != tenant_of(bar):
            return False
        if bool(task_of(lane)) != bool(task_of(bar)):
            return bool(task_of(lane))
        return lane.tenant == bar.tenant and assignment.job.pos_us < due_us

    return sum(1 for _ in takewhile(goes_before, coming))


def done_with(
    assignment: Assignment, handler: Handler, context: Context | None, value: object
) -> Ending:
    """Return the ending of a job that is done, with its result if that is kept."""
    if not assignment.keep or (context is not None and context.is_settled):
        return NOTHING
    return NULL if value is None else Done(handler.write_result(value, assignment.job))


def fitting(
    read: Callable[[int, bytes, bytes], Read], codec: int, body: bytes, given: bytes
) -> Read:
    """Read the arguments of a job, before its handler is called.

    Raises: Suspended: they do not fit; what the handler itself raises later is its own failure.
    """
    try:
        return read(codec, body, given)
    except Misfit as error:
        raise Suspended(GivenBack(misfit=error.message), error.message) from error
