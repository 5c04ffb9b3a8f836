"""What a job waits for, as callers write it."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, get_args

from dueline.api.handle import Handle
from dueline.api.job_handle import parse_id
from dueline.api.workflows import Flow
from dueline.core.call_options import AwaitedJobs, WaitFailures
from dueline.core.errors import BadInput

JOBS_MAX: Final = 100
"""Maximum number of jobs and workflows that a job can wait for."""

Awaited = Handle[Any] | str


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
        self.awaited()

    def awaited(self) -> AwaitedJobs:
        """Return the ids, as a call carries them."""
        failures: str = self.failures
        if failures == "collect":
            raise BadInput(
                "A job gets no results of the jobs that it waits for, so none can be collected.",
                hint='Use failures="skip", and read their states in the task.',
            )
        if failures not in get_args(WaitFailures):
            words = ", ".join(get_args(WaitFailures))
            raise BadInput(f"failures is {failures!r:.80}.", hint=f"Use one of {words}.")
        several = self.jobs
        if isinstance(several, Handle | str):
            several = [several]
        if not isinstance(several, Iterable):
            raise _no_job(several)
        jobs: dict[bytes, None] = {}
        flows: dict[bytes, None] = {}
        for one in several:
            if isinstance(one, Flow):
                flows[parse_id(one.id)] = None
            elif isinstance(one, Handle | str):
                jobs[parse_id(one if isinstance(one, str) else one.id)] = None
            else:
                raise _no_job(one)
        if not 0 < len(jobs) + len(flows) <= JOBS_MAX:
            raise BadInput(
                f"`depends_on` must name 1 to {JOBS_MAX} jobs (got {len(jobs) + len(flows)}).",
                hint="Start the jobs as a group of a workflow, and depend on that.",
            )
        return AwaitedJobs(tuple(jobs), tuple(flows), self.failures)


def read_dependency(value: object) -> AwaitedJobs:
    """Return what the option `depends_on` names."""
    return value.awaited() if isinstance(value, Dependency) else Dependency(value).awaited()  # type: ignore[arg-type]  # it checks the value


def _no_job(value: object) -> BadInput:
    return BadInput(
        f"{value!r:.80} is no job that a job can wait for.",
        hint="Pass what `enqueue` or `start` returned, an id, or a list of these.",
    )
