"""What others ask of a worker: to cancel its jobs, to note dependents, what operators request."""

import threading
from collections import deque
from collections.abc import Collection, Sequence

from dueline.coordination import worker_requests
from dueline.coordination.worker_requests import WorkerRequest
from dueline.core.attempt import Cancelled, Done, Ended, GivenBack, Parked, Settled, misfit_of
from dueline.core.call_options import durable_place
from dueline.core.clock import SECOND_US, Clock
from dueline.core.engine import Engine
from dueline.core.job import Claim, Job, JobId
from dueline.jobs import cancel_requests
from dueline.worker.context_controls import CANCELLED, RecentClaims

READ_EVERY_US = SECOND_US
"""Interval at which a worker that holds jobs reads its requests."""


class Cancellations:
    """Cancel requests for claimed jobs: the heartbeat's thread reads them, the loop applies them.

    Args:
      engine: The engine.
      worker: The worker that is asked.
      clock: The machine's clock.
      wakeup: Set when requests were read.

    Attributes:
      known: Claims that were cancelled, as far as this process has read.
      forced: Those of them whose handlers are stopped whatever they do.
    """

    def __init__(
        self, engine: Engine, worker: str, clock: Clock, wakeup: threading.Event | None = None
    ) -> None:
        self._engine = engine
        self._worker = worker
        self._clock = clock
        self._wakeup = wakeup or threading.Event()
        self.known = RecentClaims()
        self.forced = RecentClaims()
        self._ended_by_force = RecentClaims()
        self._new: deque[Claim] = deque()
        self._requests: deque[WorkerRequest] = deque()
        self._awaited: deque[JobId] = deque()
        self._seen_changes = engine.catalog.changes
        self._read_us = clock.monotonic_us()

    def read(self) -> bool:
        """Read this worker's requests, at most once a second; return whether any exist."""
        now_us = self._clock.monotonic_us()
        if now_us - self._read_us < READ_EVERY_US:
            return False
        self._read_us = now_us
        return self._read_inbox()

    def read_if_notified(self) -> bool:
        """Read the requests if settings of a queue were stored again (rule O1)."""
        changes = self._engine.catalog.changes
        if changes == self._seen_changes:
            return False
        has_requests = self._read_inbox()
        self._seen_changes = changes
        return has_requests

    def known_before(self, ended: Sequence[Ended]) -> Collection[Claim]:
        """Return the claims that were cancelled before it is decided how attempts end (rule P11).

        Unless all have succeeded or are released, the requests are read again.
        """
        kept = Done | Settled | GivenBack | Parked
        if not all(
            isinstance(attempt.ending, kept) and not misfit_of(attempt.ending) for attempt in ended
        ):
            self._read_inbox()
        return self.known

    def _read_inbox(self) -> bool:
        store = self._engine.store
        inbox = cancel_requests.inbox(store, self._worker)
        if not inbox:
            return False
        claims = cancel_requests.claims_in(inbox)
        self.forced.add(claim for claim, by_force in claims.items() if by_force)
        self.known.add(claims)
        self._new.extend(claims)
        self._requests.extend(worker_requests.requests_in(inbox))
        self._awaited.extend(worker_requests.awaited_in(inbox))
        # They may be read twice: that changes nothing.
        if claims:
            cancel_requests.note(store, self._worker, claims)
        worker_requests.note(store, self._worker, inbox)
        self._wakeup.set()
        return True

    def take_requests(self) -> list[WorkerRequest]:
        """Return the requests of operators since the last call."""
        taken = []
        while self._requests:
            taken.append(self._requests.popleft())
        return taken

    def take_awaited(self) -> list[JobId]:
        """Return the jobs for which others wait, of those that the worker holds or held."""
        taken = []
        while self._awaited:
            taken.append(self._awaited.popleft())
        return taken

    def take(self) -> list[Claim]:
        """Return the claims that were cancelled since the last call."""
        taken = []
        while self._new:
            taken.append(self._new.popleft())
        return taken

    def without_late(self, ended: list[Ended]) -> list[Ended]:
        """Drop how handlers ended that could not be stopped: their jobs were ended by force."""
        kept = []
        for attempt in ended:
            claim = attempt.job.claim()
            if claim in self._ended_by_force:
                continue
            if claim in self.forced:
                self._ended_by_force.add([claim])
            kept.append(attempt)
        return kept

    def refused(self, jobs: Sequence[Job]) -> list[Ended]:
        """Return endings for those of some freshly claimed jobs that were cancelled.

        A request for an earlier claim applies to this one, too: if it was written before this
        claim, it is found here; if after, the one who cancelled saw this claim.
        """
        requested: Collection[JobId] = ()
        jobs = [job for job in jobs if durable_place(job) is None]  # those read theirs themselves
        before = [job.id for job in jobs if job.fence > 1]
        if before:
            requested = cancel_requests.asked(self._engine.store, before)
        if not requested and not self.known:
            return []
        return [self.ended(job) for job in jobs if job.id in requested or job.claim() in self.known]

    def ended(self, job: Job) -> Ended:
        """Return the ending of a job whose handler was not called."""
        return Ended(job, Cancelled(CANCELLED), 0, self._engine.time.latest_us())
