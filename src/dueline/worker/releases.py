"""How attempts end that their worker gives up."""

from collections.abc import Callable, Iterable, Iterator, Mapping

from dueline.core.attempt import Crashed, Ended, Ending, GivenBack
from dueline.core.job import Job, JobId
from dueline.core.queue_settings import QueueSettings
from dueline.worker.held_jobs import HeldJobs

STOPPED_FIRST = "The worker stopped first."
"""Error of a job of an at-most-once queue whose handler was left or interrupted."""


def released(
    jobs: Iterable[Job],
    held: HeldJobs,
    settings: Callable[[str], QueueSettings],
    *,
    dues: Mapping[JobId, int],
    now_us: int,
    may_run: bool,
) -> Iterator[Ended]:
    """Yield the endings of jobs that are held.

    Args:
      dues: Due times of prefetched jobs.
      may_run: Their handlers may run, so an at-most-once queue must not run them again.
    """
    for job in jobs:
        if job in held:
            ending: Ending = GivenBack(max(0, dues.get(job.id, 0) - now_us), may_have_run=may_run)
            if may_run and settings(job.lane.queue).is_once:
                ending = Crashed(STOPPED_FIRST)
            yield Ended(job, ending, 0, now_us)


def after_stop(ended: Ended, settings: Callable[[str], QueueSettings]) -> Ended:
    """Return how an attempt ended that may have been interrupted because its worker stops."""
    if type(ended.ending) is GivenBack and settings(ended.job.lane.queue).is_once:
        return ended._replace(ending=Crashed(STOPPED_FIRST))  # the job must not run again
    return ended
