"""What a job waits for, as callers write it."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, get_args

from dueline.api.job_handle import Job, parse_id
from dueline.api.workflows import Flow
from dueline.core.call_options import AwaitedJobs, WaitFailures
from dueline.core.errors import BadInput

JOBS_MAX: Final = 100
"""Maximum number of jobs and workflows that a job can wait for."""

Awaited = Job[Any] | Flow | str


@dataclass(frozen=True, slots=True)
class Dependency:
    """Jobs and workflows that must end before a job starts, and what happens if one fails.

    Attributes:
        jobs: A handle on a job or workflow, the id of one, or a list of these: up to 100.
        failures: What happens to the waiting job if one of them fails. "stop": it waits until a
            dead job is retried, and is cancelled if one is cancelled, expired or lost. "skip": it
            runs after all have ended, in whatever state. "cancel": it is cancelled.

    Raises:
        BadInput: A value is invalid.
    """

    jobs: Awaited | Iterable[Awaited]
    failures: WaitFailures = "stop"

    def __post_init__(self) -> None:
        """Check the values."""
        read_dependency(self)


def read_dependency(value: object) -> AwaitedJobs:
    """Return what the option `depends_on` names.

    Raises: BadInput: it is invalid.
    """
    if not isinstance(value, Dependency):
        return _awaited_in(value, "stop")
    _check_failures(value.failures)
    return _awaited_in(value.jobs, value.failures)


def _check_failures(failures: str) -> None:
    if failures == "collect":
        raise BadInput(
            "A job gets no results of the jobs that it waits for, so none can be collected.",
            hint='Use failures="skip", and read their states in the task.',
        )
    if failures not in get_args(WaitFailures):
        words = ", ".join(get_args(WaitFailures))
        raise BadInput(f"failures is {failures!r:.80}.", hint=f"Use one of {words}.")


def _awaited_in(several: object, failures: WaitFailures) -> AwaitedJobs:
    if isinstance(several, Job | Flow | str):
        several = [several]
    if not isinstance(several, Iterable):
        raise _no_job(several)
    jobs: dict[bytes, None] = {}
    flows: dict[bytes, None] = {}
    for awaited in several:
        if not isinstance(awaited, Job | Flow | str):
            raise _no_job(awaited)
        known = flows if isinstance(awaited, Flow) else jobs
        known[parse_id(awaited if isinstance(awaited, str) else awaited.id)] = None
    if not 0 < len(jobs) + len(flows) <= JOBS_MAX:
        raise BadInput(
            f"`depends_on` must name 1 to {JOBS_MAX} jobs (got {len(jobs) + len(flows)}).",
            hint="Start the jobs as a group of a workflow, and depend on that.",
        )
    return AwaitedJobs(tuple(jobs), tuple(flows), failures)


def _no_job(value: object) -> BadInput:
    return BadInput(
        f"{value!r:.80} is no job that a job can wait for.",
        hint="Pass what `enqueue` or `start` returned, an id, or a list of these.",
    )
