"""Which slots of a worker are free."""

from collections import Counter
from collections.abc import Mapping, Sequence

from dueline.core.job import Job
from dueline.worker.batch_gatherer import BatchGatherer
from dueline.worker.held_jobs import HeldJobs
from dueline.worker.prefetch import PrefetchedJobs
from dueline.worker.runner import Runner


class Slots:
    """Those of the runner, one for each job that it may run at once, and those that queues have.

    A job that is held ahead of its time takes none of them yet, and a chunk takes one.
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
        """How many jobs of chunks take none."""
        return self._gatherer.slotless if self._gatherer else 0

    @property
    def more(self) -> int:
        """How many jobs more than there are slots are claimed, for chunks."""
        return self._gatherer.more if self._gatherer else 0

    def seen(self, taken: Sequence[Job]) -> None:
        """Learn from what a claim brought how many more are claimed."""
        if self._gatherer:
            self._gatherer.seen(taken)

    def taken(self) -> int:
        """Count the slots taken by jobs whose time has come."""
        return len(self._held) - len(self._prefetched) - self.slotless

    def free(self) -> int:
        """Count the slots that are free, and will be when the time of all has come."""
        return self._runner.capacity - len(self._held) + self.slotless

    def limited(self) -> int:
        """Tell how many jobs with limits may be held."""
        return self._runner.threads + self.slotless + self.more

    def room(self, *, with_early: bool = False) -> Mapping[str, int]:
        """Tell how many jobs more each queue with slots of its own may have.

        Args: with_early: jobs that are held ahead of their time count, too.
        """
        besides = {} if with_early else self._prefetched.by_queue()
        if self._gatherer is None:
            return self._held.room(besides)
        room = self._held.room(self._gatherer.by_queue() + Counter(besides))
        return {queue: count + self.more if count > 0 else count for queue, count in room.items()}

    def own(self) -> dict[str, tuple[int, int]]:
        """Return, per queue with slots of its own, these and the jobs that take one now."""
        besides = Counter(self._prefetched.by_queue())
        if self._gatherer is not None:
            besides += self._gatherer.by_queue()
        room = self._held.room(besides)
        slots = self._held.slots
        return {queue: (slots[queue], slots[queue] - left) for queue, left in room.items()}
