"""Counts starts that passed more urgent jobs which were ready, for metrics."""

from bisect import bisect_left, bisect_right, insort
from typing import Final

from dueline.core.call_options import may_wait
from dueline.core.job import Job
from dueline.core.lane import NEEDS_MARK, limits_of

KEPT: Final = 1_000
"""Number of starts and of waits that are kept of each priority, at least."""

PRIORITIES_MAX: Final = 16
"""Maximum number of priorities of a queue that are compared: the latest ones."""

APART_US: Final = 10_000
"""A thread reads the time shortly before it takes a job, so closer starts have no known order."""


class _Line:
    """Jobs of one priority; each list is sorted once the queue has several priorities.

    Attributes:
      starts_us: When attempts started.
      ready_us: Since when jobs waited for their first start.
      until_us: Until when they waited.
    """

    __slots__ = ("ready_us", "starts_us", "until_us")

    def __init__(self) -> None:
        self.starts_us: list[int] = []
        self.ready_us: list[int] = []
        self.until_us: list[int] = []

    def started_within(self, ready_us: int, until_us: int) -> int:
        """Count the starts between two times."""
        return bisect_left(self.starts_us, until_us) - bisect_right(self.starts_us, ready_us)

    def waiting_at(self, at_us: int) -> int:
        """Count the jobs that waited at a time."""
        waiting = bisect_left(self.ready_us, at_us) - bisect_right(self.until_us, at_us)
        return max(0, waiting)  # fewer where the lists were trimmed

    def trim(self) -> None:
        """Drop the oldest times of long lists."""
        for times in (self.starts_us, self.ready_us, self.until_us):
            if len(times) > 2 * KEPT:
                del times[:-KEPT]


class StartOrder:
    """The order in which a worker started the jobs of one queue.

    A start passes a job that is more urgent, was ready before it, and starts after it. Each pair of
    jobs counts once, when the later one of their ends is counted. While all jobs have one priority,
    only their starts are kept.

    Attributes:
      is_mixed: Whether the jobs have had different priorities.
    """

    def __init__(self) -> None:
        self.is_mixed = False
        self._lines: dict[int, _Line] = {}  # the latest one last

    def starts_of(self, priority: int) -> list[int]:
        """Return where the starts of jobs of a priority are kept until the queue is mixed."""
        line = self._lines.pop(priority, None) or _Line()
        if self._lines and not self.is_mixed:
            self.is_mixed = True
            for other in self._lines.values():
                other.starts_us.sort()
        self._lines[priority] = line
        if len(self._lines) > PRIORITIES_MAX:
            del self._lines[next(iter(self._lines))]
        line.trim()
        return line.starts_us

    def passed(self, job: Job, started_us: int) -> int:
        """Add an attempt of a mixed queue; return how many more pairs are out of order.

        A job waits only before its first claim, and not for a limit, resources or other jobs.
        """
        lane = job.lane
        ready_us, until_us = job.pos_us, max(job.claimed_us, started_us - APART_US)
        has_waited = job.fence == 1 and until_us > ready_us
        if has_waited:
            has_waited = not (limits_of(lane) or NEEDS_MARK in lane.tenant or may_wait(job))
        pairs = 0
        for priority, line in self._lines.items():
            if priority > lane.priority:
                pairs += line.waiting_at(started_us)
            elif has_waited and priority < lane.priority:
                pairs += line.started_within(ready_us, until_us)
        own = self._lines[lane.priority]
        insort(own.starts_us, started_us)
        if has_waited:
            insort(own.ready_us, ready_us)
            insort(own.until_us, until_us)
        return pairs
