"""Jobs that are marked as started before they start."""

from collections import deque
from collections.abc import Collection, Sequence
from itertools import islice

from dueline.core.clock import Clock
from dueline.core.job import Claim, Job
from dueline.worker.held_jobs import HeldJobs
from dueline.worker.runner import Runner
from dueline.worker.settler import Settler


class MarkedStarts:
    """Jobs whose last claim died, or that run at most once: each is marked before it starts.

    The mark is durable before the handler is called. So a job that kills its process is counted at
    the next claim, and jobs that only waited next to it are not.
    Suspects run alone: in a child process of their own, or in a worker that runs nothing else.
    """

    def __init__(
        self,
        runner: Runner,
        settler: Settler,
        held: HeldJobs,
        clock: Clock,
    ) -> None:
        self._runner = runner
        self._settler = settler
        self._held = held
        self._clock = clock
        self._since_us: dict[Claim, int] = {}  # of those that wait for a slot, in their order
        self._plain: deque[Job] = deque()
        self._suspects: deque[Job] = deque()
        self._lone: Job | None = None

    def __len__(self) -> int:
        """Count the unstarted jobs that are still held."""
        return sum(job in self._held for job in (*self._plain, *self._suspects))

    def has_waiting(self) -> bool:
        """Return whether jobs wait for their start, held or not."""
        return bool(self._plain or self._suspects)

    def add(self, jobs: Sequence[Job]) -> None:
        """Add jobs that wait for their start."""
        now_us = self._clock.monotonic_us()
        for job in jobs:
            if job.alone and not self._runner.isolates:
                self._suspects.append(job)
            else:
                self._plain.append(job)
                if not job.alone:
                    self._since_us[job.claim()] = now_us

    def take(self, claims: Collection[Claim] | None = None) -> list[Job]:
        """Take the jobs of some claims, or all."""
        taken = []
        for line in (self._plain, self._suspects):
            for job in [job for job in line if claims is None or job.claim() in claims]:
                line.remove(job)
                self._since_us.pop(job.claim(), None)
                taken.append(job)
        return taken

    def waiting_since_us(self) -> int | None:
        """Return when the oldest job arrived that waits for a slot; None if none waits."""
        return next(iter(self._since_us.values()), None)

    def take_waiting(self) -> list[Job]:
        """Take the jobs that wait for a slot; suspects wait for a process of their own."""
        return self.take([*self._since_us])

    def needs_isolation(self) -> bool:
        """Return whether no other job may start: a suspect waits for that, or runs."""
        return bool(self._suspects) or self._is_alone()

    def start(self, running: int) -> list[Job]:
        """Start the jobs that may start; return those whose claims were lost.

        Args:
            running: Number of jobs that the runner has.
        """
        free = self._runner.threads - running
        if self._is_alone():
            return []
        if self._suspects:
            if free == self._runner.threads:
                lone = self._suspects[0]
                lost = self._start_marked(self._suspects, 1)
                self._lone = lone  # only once it is marked: marking may fail
                return lost
        elif free > 0 and self._plain:
            return self._start_marked(self._plain, min(free, len(self._plain)))
        return []

    def _is_alone(self) -> bool:
        """Return whether a suspect runs that excludes other jobs."""
        return self._lone is not None and self._lone in self._held

    def _start_marked(self, source: deque[Job], count: int) -> list[Job]:
        """Start the first jobs of a line, which leave it once marked; return the lost ones."""
        first = list(islice(source, count))
        jobs = [job for job in first if job in self._held]
        now_us = self._clock.monotonic_us()
        assignments = self._held.assignments(jobs, now_us)  # may fail: then they wait in their line
        lost = {job.id for job in self._settler.settle([], jobs)} if jobs else set()
        for job in first:
            source.popleft()
            self._since_us.pop(job.claim(), None)
        self._held.marked.update(job.claim() for job in jobs if job.id not in lost)
        self._runner.submit(
            [assignment for assignment in assignments if assignment.job.id not in lost]
        )
        return [job for job in jobs if job.id in lost]
