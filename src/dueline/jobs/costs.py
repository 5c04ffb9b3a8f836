"""What new jobs take of their limits."""

from collections.abc import Sequence

from dueline.core.job import Job
from dueline.core.lane import has_costs
from dueline.core.limit_costs import costs_in, opts_with_costs
from dueline.limits.definitions import LimitDefinitions


def with_costs(
    jobs: Sequence[Job], limits: Sequence[Sequence[str]], known: LimitDefinitions, now_us: int
) -> Sequence[Job]:
    """Return new jobs whose options have the numbers of units of their limits.

    Raises:
        BadInput: A cost is larger than the capacity of its limit.
    """
    if not any(has_costs(job.lane) for job in jobs):
        return jobs
    known.expect_room({cost for names in limits for cost in costs_in(names)}, now_us)
    return [
        job._replace(opts=opts_with_costs(job.opts, names))
        for job, names in zip(jobs, limits, strict=True)
    ]
