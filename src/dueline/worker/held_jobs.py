"""The jobs that a worker holds."""

from collections.abc import Callable, Container, Iterable, Mapping, Sequence

from dueline.core.job import Claim, Job, JobId
from dueline.core.queue_settings import QueueSettings
from dueline.tasks.progress import Progress
from dueline.worker.assignment import Assignment
from dueline.worker.claimer import ClaimedJob
from dueline.worker.triage import assigned


class HeldJobs:
    """The jobs whose claims a worker has, and what it knows about them.

    The worker's loop, its heartbeat and its timer share it.

    Attributes:
      last: Progress that earlier attempts reported.
      given: First arguments of workflow steps.
      slots: Slots that queues have of their own.
      marked: Claims whose handlers are recorded as started in the store.
      start_by_us: Latest starts of jobs with rates.
    """

    def __init__(
        self, slots: Mapping[str, int | None], settings: Callable[[str], QueueSettings]
    ) -> None:
        self.last: dict[JobId, Progress] = {}
        self.given: dict[JobId, bytes] = {}
        self.start_by_us: Mapping[Claim, int] = {}
        self.marked: set[Claim] = set()
        self._jobs: dict[JobId, Job] = {}
        self._settling: set[JobId] = set()
        self.slots = {queue: count for queue, count in slots.items() if count}
        self._settings = settings

    def __len__(self) -> int:
        """Count the jobs."""
        return len(self._jobs)

    def __contains__(self, job: Job) -> bool:
        """Return whether this very claim is held; another worker may have claimed the job since."""
        held = self._jobs.get(job.id)
        return held is not None and held.fence == job.fence

    def still(self, taken: Iterable[ClaimedJob]) -> list[ClaimedJob]:
        """Return those claimed jobs that are still held as they were claimed."""
        held = self._jobs
        return [claimed for claimed in taken if held.get(claimed.job.id) is claimed.job]

    def jobs(self) -> list[Job]:
        """Return the jobs."""
        return list(self._jobs.values())

    def add(self, jobs: Sequence[Job]) -> None:
        """Hold claimed jobs."""
        self._jobs.update({job.id: job for job in jobs})
        self._settling.difference_update([job.id for job in jobs])  # claimed again

    def settling(self, jobs: Sequence[Job]) -> None:
        """Note which jobs are being settled: they take no slots."""
        self._settling = {job.id for job in jobs if job in self}

    def is_unsettled(self, job: Job) -> bool:
        """Return whether this very claim is held, and not being settled."""
        return job in self and job.id not in self._settling

    @property
    def unsettled(self) -> int:
        """Number of jobs that are not being settled."""
        return len(self._jobs) - len(self._settling)

    def drop(self, jobs: Sequence[Job]) -> None:
        """Drop jobs, if it is these claims that are held."""
        held, last, given = self._jobs, self.last, self.given
        for job in jobs:
            mine = held.get(job.id)  # as `job in self`, without a call for each
            if mine is not None and (mine is job or mine.fence == job.fence):
                held.pop(job.id, None)
                self._settling.discard(job.id)
                if last:
                    last.pop(job.id, None)
                if given:
                    given.pop(job.id, None)
        if self.marked:
            self.marked.difference_update([job.claim() for job in jobs])

    def keep(
        self, fit: list[ClaimedJob], given: Mapping[JobId, bytes], *, of: Sequence[ClaimedJob]
    ) -> list[ClaimedJob]:
        """Keep those claimed jobs that run, with their first arguments; drop the others."""
        if len(fit) < len(of):
            kept = {claimed.job.id for claimed in fit}
            self.drop([claimed.job for claimed in of if claimed.job.id not in kept])
        self.given |= given
        return fit

    def unmarked(self, running: Iterable[Job], over: Container[JobId]) -> list[Job]:
        """Return the running jobs that are not recorded as started, except those that ended."""
        return [
            job
            for job in running
            if job.id not in over and job.claim() not in self.marked and job in self
        ]

    def room(self, besides: Mapping[str, int]) -> dict[str, int]:
        """Return the free slots of each queue with its own slots.

        Args:
            besides: Number of held jobs that take no slot, by queue.
        """
        room = {queue: slots + besides.get(queue, 0) for queue, slots in self.slots.items()}
        if room:
            for job in self.jobs():  # the heartbeat may drop some meanwhile
                if job.lane.queue in room:
                    room[job.lane.queue] -= 1
        return room

    def assignments(self, jobs: Sequence[Job], now_us: int = 0) -> list[Assignment]:
        """Make assignments of jobs, except those whose claims the heartbeat has lost meanwhile.

        Losses are checked after the assignments are made: arguments are dropped after their job.
        """
        made = assigned(jobs, self._settings, self.last, self.given, now_us)
        if by_us := self.start_by_us:
            made = [
                assignment._replace(start_by_us=by_us.get(assignment.job.claim(), 0))
                for assignment in made
            ]
        if all(job.id in self._jobs for job in jobs):  # nearly always
            return made
        return [assignment for assignment in made if assignment.job in self]
