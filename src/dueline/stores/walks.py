"""A walk over a lane whose rows are stored in the order of their times."""

from bisect import bisect_right

from dueline.core.job import Job
from dueline.core.lane import Lane
from dueline.core.store import JobPage, Jobs, Place


def _place(job: Job) -> Place:
    return (job.at_us, job.id)


class WalksByTime:
    """The walk of a store that stores the rows of a lane in (at, id) order."""

    def walk(
        self: Jobs,
        lane: Lane,
        *,
        after: Place | None,
        until: Place | None,
        limit: int,
        skip: int = 0,
    ) -> JobPage:
        """Read all rows of a lane, in (at, id) order."""
        until_us = None if until is None else until[0]
        jobs = self.scan(lane, after=after, until_us=until_us, limit=limit, skip=skip).jobs
        if until is not None:
            jobs = jobs[: bisect_right(jobs, until, key=_place)]
        return JobPage(jobs, _place(jobs[-1]) if len(jobs) == limit else None)
