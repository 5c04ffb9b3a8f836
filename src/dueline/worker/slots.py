"""Counts the free slots of a worker."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from dueline.core.job import Job
from dueline.core.worker_needs import used_by
from dueline.worker.batch_gatherer import BatchGatherer
from dueline.worker.held_jobs import HeldJobs
from dueline.worker.prefetch import PrefetchedJobs
from dueline.worker.runner import Runner


class Slots:
    """The slots of the runner, one for each job that runs, and those that queues have of their own.

    A prefetched job takes no slot yet, and a batch takes one.
    """

    def __init__(
        self, runner: Runner, held: HeldJobs, early: PrefetchedJobs, chunks: BatchGatherer | None
    ) -> None:
        self._runner = runner
        self._held = held
        self._prefetched = early
        self._gatherer = chunks

    @property
    def slotless(self) -> int:
        """Number of batch jobs that take no slot."""
        return self._gatherer.slotless if self._gatherer else 0

    @property
    def more(self) -> int:
        """Number of jobs to claim beyond the free slots, for batches."""
        return self._gatherer.more if self._gatherer else 0

    def seen(self, taken: Sequence[Job]) -> None:
        """Learn from a claim how many jobs to claim beyond the free slots."""
        if self._gatherer:
            self._gatherer.seen(taken)

    def taken(self) -> int:
        """Count the slots taken by jobs that are due."""
        return self._held.unsettled - len(self._prefetched) - self.slotless

    def free(self) -> int:
        """Count the slots that stay free when all prefetched jobs are due."""
        return self._runner.capacity - self._held.unsettled + self.slotless

    def limited(self) -> int:
        """Return how many jobs with limits may be held."""
        return self._runner.threads + self.slotless + self.more

    def in_use(self) -> Collection[Job]:
        """Return the jobs that use resources: those that are held, and handlers that outlive it."""
        held = {job.claim(): job for job in self._held.jobs() if self._held.is_unsettled(job)}
        return {**{job.claim(): job for job in self._runner.running()}, **held}.values()

    def used(self) -> Mapping[str, int]:
        """Count the units of resources that these jobs use."""
        return used_by(self.in_use())

    def room(self, *, with_early: bool = False) -> Mapping[str, int]:
        """Return the free slots of each queue with its own slots.

        Args:
            with_early: Count prefetched jobs, too.
        """
        if not self._held.slots:
            return {}
        besides = {} if with_early else self._prefetched.by_queue()
        if self._gatherer is None:
            return self._held.room(besides)
        room = self._held.room(self._gatherer.by_queue() + Counter(besides))
        return {queue: count + self.more if count > 0 else count for queue, count in room.items()}

    def own(self) -> dict[str, tuple[int, int]]:
        """Return, for each queue with its own slots, their number and how many are taken."""
        besides = Counter(self._prefetched.by_queue())
        if self._gatherer is not None:
            besides += self._gatherer.by_queue()
        room = self._held.room(besides)
        slots = self._held.slots
        return {queue: (slots[queue], slots[queue] - left) for queue, left in room.items()}
