"""What running handlers can ask, and what they report."""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager

from dueline.core.errors import LeaseLost
from dueline.core.job import Claim, Job
from dueline.tasks.chunks import Emitted
from dueline.tasks.progress import ProgressReport
from dueline.worker.assignment import Assignment
from dueline.worker.chunk_inbox import ChunkInbox

CANCELLED = "Its end was asked for."
"""Error of a job that was cancelled after it had been claimed."""

BY_FORCE = "It was ended by force."
"""Error of a job whose child process was killed for it."""


class WorkerStops(LeaseLost):
    """The worker stops, and the job is released once its handler has ended."""


LEFT_RUNNING = "It was ended by force. Its handler may run on: threads cannot be stopped."
"""Error of a job whose handler runs in a thread of its worker."""

_REMEMBERED_MAX = 10_000


class RecentClaims(dict[Claim, None]):
    """The latest of the claims that were added, up to _REMEMBERED_MAX."""

    def add(self, claims: Iterable[Claim]) -> None:
        """Add claims, and drop the oldest if there are too many."""
        self.update(dict.fromkeys(claims))
        while len(self) > _REMEMBERED_MAX:
            self.pop(next(iter(self)))


class Controls:
    """The Control of the handlers that run in this process. Threads may share it.

    Attributes:
      cancelled: Claims of jobs that were cancelled.
      overdue: Claims of jobs that run longer than their time limits.
      stopped: Claims of jobs whose handlers are to end because the worker stops.
      is_draining: The worker stops, and waits for its handlers.
      chunks: The partial results of handlers.
    """

    def __init__(self) -> None:
        self.chunks = ChunkInbox()
        self._lost = RecentClaims()
        self.cancelled = RecentClaims()
        self.overdue = RecentClaims()
        self.stopped = RecentClaims()
        self.is_draining = False
        self._stops: dict[Claim, Callable[[], object]] = {}
        self._reports: dict[Claim, ProgressReport] = {}
        self._until_us: Mapping[Claim, int] = {}
        self._guard = threading.Lock()

    def lose(self, claims: Iterable[Claim]) -> None:
        """Mark claims as lost, for handlers that ask."""
        self._lost.add(claims)

    def cancel(self, claims: Iterable[Claim]) -> None:
        """Mark claims as cancelled, for handlers that ask; stop coroutines that await."""
        cancelled = list(claims)
        with self._guard:
            self.cancelled.add(cancelled)
            for claim in cancelled:
                if (stop := self._stops.get(claim)) is not None:
                    stop()

    @contextmanager
    def stopping(self, claim: Claim, stop: Callable[[], object]) -> Iterator[None]:
        """Call `stop` in some thread if the claim is cancelled meanwhile, or was."""
        with self._guard:
            self._stops[claim] = stop
            if claim in self.cancelled or claim in self.stopped:
                stop()
        try:
            yield
        finally:
            with self._guard:
                self._stops.pop(claim, None)

    def extend(self, until_us: Mapping[Claim, int]) -> None:
        """Set the ends of extended claims; they replace those of the last call."""
        self._until_us = until_us

    def extend_more(self, until_us: Mapping[Claim, int]) -> None:
        """Set the ends of some more claims; the oldest are dropped if there are many."""
        kept = [item for item in self._until_us.items() if item[0] not in until_us]
        self._until_us = dict([*kept, *until_us.items()][-_REMEMBERED_MAX:])

    def has_expired(self, assignment: Assignment, now_us: int) -> bool:
        """Return whether another worker may have claimed a job since (rule H2).

        Or whether its rates count it as of a time that is too long ago (rule N5).
        """
        job = assignment.job
        if 0 < assignment.start_by_us < now_us:
            return True
        return (
            now_us > job.at_us and job.is_claimed() and now_us > self._until_us.get(job.claim(), 0)
        )

    def stop(self, claims: Iterable[Claim]) -> None:
        """Mark claims whose worker stops, for handlers that ask; stop coroutines that await."""
        with self._guard:
            for claim in claims:
                self.stopped[claim] = None
                if (stop := self._stops.get(claim)) is not None:
                    stop()

    def is_lost(self, claim: Claim) -> bool:
        """Return whether the claim was lost, or is given up once its handler has ended."""
        return claim in self._lost or claim in self.stopped

    def was_taken(self, claim: Claim) -> bool:
        """Return whether the claim was lost, not only given up since the worker stops."""
        return claim in self._lost

    def lasts_until_us(self, claim: Claim) -> int:
        """Return the end of an extended claim; 0 if it was not extended."""
        return self._until_us.get(claim, 0)

    def is_stopped(self, assignment: Assignment) -> bool:
        """Return whether a handler is to end because the worker stops."""
        first = assignment.chunk[0] if assignment.chunk else assignment
        return bool(self.stopped) and first.job.claim() in self.stopped

    def expire(self, assignment: Assignment) -> None:
        """Mark the claims of a handler that runs longer than its time limit."""
        self.overdue.add(part.job.claim() for part in assignment.chunk or (assignment,))

    def is_overdue(self, claim: Claim) -> bool:
        """Return whether the job runs longer than its time limit."""
        return claim in self.overdue

    def has_cancelled(self, job: Job) -> bool:
        """Return whether a job that is about to run was cancelled."""
        return bool(self.cancelled) and job.claim() in self.cancelled

    def is_cancelled(self, claim: Claim) -> bool:
        """Return whether the job was cancelled."""
        return claim in self.cancelled

    def report(self, claim: Claim, report: ProgressReport) -> None:
        """Keep a handler's last report until it is taken."""
        with self._guard:
            self._reports[claim] = report

    def emit(self, emitted: Emitted) -> None:
        """Pass a partial result on."""
        self.chunks.emit(emitted)

    def take_reports(self) -> dict[Claim, ProgressReport]:
        """Return the last report of each handler that reported since the last call."""
        if not self._reports:
            return {}
        with self._guard:
            taken, self._reports = self._reports, {}
        return taken
