"""What the jobs of a claim need of their limits."""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Final, NamedTuple

from dueline.core.job import Job
from dueline.core.lane import Lane
from dueline.core.limit_costs import costs_of


class Needs(NamedTuple):
    """What the first jobs of a lane need of its limits.

    line: of the jobs that run in their order; empty if each job takes one unit of each limit.
    totals: what the first job needs, the first two, and so on, by limit; one unit each of others.
    """

    line: tuple[object, ...] = ()
    totals: Mapping[str, Sequence[int]] = {}

    def units(self, name: str, jobs: int) -> int:
        """Return what the first `jobs` need of a limit."""
        totals = self.totals.get(name)
        return jobs if totals is None or not jobs else totals[min(jobs, len(totals)) - 1]

    def jobs(self, name: str, units: int, most: int) -> int:
        """Return for how many jobs `units` of a limit suffice.

        Args: most: all units of the limit. A job that needs more, since they were lowered after it
          was enqueued, runs alone: it takes all of them.
        """
        totals = self.totals.get(name)
        if totals is None:
            return units
        return bisect_right(totals, units) or int(units >= most > 0)


ANY: Final = Needs()
"""Each job takes one unit of each limit."""


def line_of(lane: Lane) -> tuple[object, ...]:
    """Return the line of a lane with costs. Lanes of a line differ by their time only."""
    return lane.queue, lane.shard, lane.priority, lane.tenant


def needs_of(lane: Lane, jobs: Sequence[Job]) -> Needs:
    """Return what the first jobs of a lane need."""
    costs = [costs_of(job) for job in jobs]
    names = {name for cost in costs for name in cost}
    totals = {name: list(accumulate(cost.get(name, 1) for cost in costs)) for name in names}
    return Needs(line_of(lane), totals)


def units_of(jobs: Sequence[Job], names: Sequence[str]) -> dict[str, int]:
    """Return what jobs take of limits together."""
    costs = [costs_of(job) for job in jobs]
    return {name: sum(cost.get(name, 1) for cost in costs) for name in names}
