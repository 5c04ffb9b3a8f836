"""What a worker holds."""

from collections.abc import Callable, Container, Iterable, Mapping, Sequence

from dueline.core.job import Claim, Job, JobId
from dueline.core.queue_settings import QueueSettings
from dueline.core.tuples import field
from dueline.tasks.progress import Progress
from dueline.worker.assignment import Assignment
from dueline.worker.claimer import ClaimedJob
from dueline.worker.triage import assigned

_id_of = field(Job, "id")


class HeldJobs:
    """The jobs whose claims a worker has, and what it knows of them.

    The worker's loop, its beat and its timer share it.
    last: what earlier attempts said of their progress. given: the first arguments of steps of
    workflows. slots: those that queues have of their own. marked: the claims of which the store
    knows that their handlers were started. start_by_us: until when jobs with rates may start.
    """

    def __init__(
        self, slots: Mapping[str, int | None], settings: Callable[[str], QueueSettings]
    ) -> None:
        self.last: dict[JobId, Progress] = {}
        self.given: dict[JobId, bytes] = {}
        self.start_by_us: Mapping[Claim, int] = {}
        self.marked: set[Claim] = set()
        self._jobs: dict[JobId, Job] = {}
        self.slots = {queue: count for queue, count in slots.items() if count}
        self._settings = settings

    def __len__(self) -> int:
        """Count the jobs."""
        return len(self._jobs)

    def __contains__(self, job: Job) -> bool:
        """Tell whether this very claim is held: after a stall the job may be held by another."""
        held = self._jobs.get(job.id)
        return held is not None and held.fence == job.fence

    def still(self, taken: Iterable[ClaimedJob]) -> list[ClaimedJob]:
        """List those of some claimed jobs that are held as they were claimed."""
        held = self._jobs
        return [one for one in taken if held.get(one.job.id) is one.job]

    def jobs(self) -> list[Job]:
        """List the jobs."""
        return list(self._jobs.values())

    def add(self, jobs: Sequence[Job]) -> None:
        """Hold jobs that were claimed."""
        self._jobs.update(zip(map(_id_of, jobs), jobs, strict=True))

    def drop(self, jobs: Sequence[Job]) -> None:
        """Hold jobs no more, as far as it is these claims that are held."""
        held, last, given = self._jobs, self.last, self.given
        for job in jobs:
            mine = held.get(job.id)  # as `job in self`, without a call for each
            if mine is not None and (mine is job or mine.fence == job.fence):
                held.pop(job.id, None)
                if last:
                    last.pop(job.id, None)
                if given:
                    given.pop(job.id, None)
        if self.marked:
            self.marked.difference_update([job.claim() for job in jobs])

    def keep(
        self, fit: list[ClaimedJob], given: Mapping[JobId, bytes], *, of: Sequence[ClaimedJob]
    ) -> list[ClaimedJob]:
        """Of some claimed jobs, hold on to those that are run, and to what they are given."""
        if len(fit) < len(of):
            kept = {one.job.id for one in fit}
            self.drop([one.job for one in of if one.job.id not in kept])
        self.given |= given
        return fit

    def unmarked(self, running: Iterable[Job], over: Container[JobId]) -> list[Job]:
        """List those whose handlers run and of which the store does not know it, unless over."""
        return [
            job
            for job in running
            if job.id not in over and job.claim() not in self.marked and job in self
        ]

    def room(self, besides: Mapping[str, int]) -> dict[str, int]:
        """Tell how many jobs more each queue with slots of its own may have.

        Args: besides: how many of those held take no slot, by queue.
        """
        room = {queue: slots + besides.get(queue, 0) for queue, slots in self.slots.items()}
        if room:
            for job in self.jobs():  # the beat may lose some meanwhile
                if job.lane.queue in room:
                    room[job.lane.queue] -= 1
        return room

    def assignments(self, jobs: Sequence[Job], now_us: int = 0) -> list[Assignment]:
        """Say how jobs are run; of those whose claims the beat has lost meanwhile, nothing.

        Looked at once that is said: what a job is given is let go after the job.
        """
        made = assigned(jobs, self._settings, self.last, self.given, now_us)
        if by_us := self.start_by_us:
            made = [one._replace(start_by_us=by_us.get(one.job.claim(), 0)) for one in made]
        if all(map(self._jobs.__contains__, map(_id_of, jobs))):  # nearly always, and quickly
            return made
        return [one for one in made if one.job in self]
