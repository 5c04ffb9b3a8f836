"""Which of a worker's jobs shall end."""

from collections import deque
from collections.abc import Sequence

from dueline.core.attempt import Cancelled, Ended
from dueline.core.clock import SECOND_US, Clock
from dueline.core.engine import Engine
from dueline.core.job import Claim, Job, JobId
from dueline.jobs import cancel_requests
from dueline.worker.context_controls import CANCELLED, RecentClaims

READ_EVERY_US = SECOND_US
"""While a worker holds jobs, it looks this often whether one is to be cancelled."""


class Cancellations:
    """The wishes for the end of claimed jobs: the beat's thread reads, the loop obeys.

    known: the claims of which this process read that they are to stop.
    """

    def __init__(self, engine: Engine, worker: str, clock: Clock) -> None:
        self._engine = engine
        self._worker = worker
        self._clock = clock
        self.known = RecentClaims()
        self._new: deque[Claim] = deque()
        self._read_us = clock.monotonic_us()

    def read(self) -> bool:
        """Read what is wished of this worker, at most once a second; tell whether it was news."""
        now_us = self._clock.monotonic_us()
        if now_us - self._read_us < READ_EVERY_US:
            return False
        self._read_us = now_us
        store = self._engine.store
        claims = cancel_requests.of_worker(store, self._worker)
        if not claims:
            return False
        self.known.add(claims)
        self._new.extend(claims)
        cancel_requests.note(
            store, self._worker, claims
        )  # they may be read twice: that changes nothing
        return True

    def take(self) -> list[Claim]:
        """Take the claims whose end was wished for since the last call."""
        taken = []
        while self._new:
            taken.append(self._new.popleft())
        return taken

    def refused(self, jobs: Sequence[Job]) -> list[Ended]:
        """End those of some freshly claimed jobs that shall not run.

        A wish that was for an earlier claim holds for this one, too: it was written before this
        claim, so that it is found now, or after it, and then the one who wished saw this claim.
        """
        wished: set[JobId] = set()
        before = [job.id for job in jobs if job.fence > 1]
        if before:
            wished = cancel_requests.asked(self._engine.store, before)
        if not wished and not self.known:
            return []
        return [self.ended(job) for job in jobs if job.id in wished or job.claim() in self.known]

    def ended(self, job: Job) -> Ended:
        """End a job that no handler was called for."""
        return Ended(job, Cancelled(CANCELLED), 0, self._engine.time.latest_us())
