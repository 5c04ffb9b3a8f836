"""What a worker's handlers say of their progress."""

import threading
from collections.abc import Callable, Collection, Mapping, Sequence

from dueline.job import Claim, Job, JobId
from dueline.progress import Progress, Report
from dueline.queue import Queues
from dueline.recipes import reports


class Reports:
    """Takes reports from the handlers, and writes the last of each job to the store."""

    def __init__(self, queues: Queues, take: Callable[[], Mapping[Claim, Report]]) -> None:
        """Take the engine, and what answers the reports since its last call."""
        self._queues = queues
        self._take = take
        self._unwritten: dict[Claim, Progress] = {}
        self._guard = threading.Lock()

    def write(self, only: Collection[Claim] | None = None) -> None:
        """Write the last reports, of some claims only or of all, in one call.

        Raises: StoreUnavailable: they are kept for the next call.
        """
        with self._guard:
            told = self._take()
            if told:
                at_us = self._queues.time.latest_us()
                self._unwritten.update(
                    {claim: Progress(*report, at_us) for claim, report in told.items()}
                )
            chosen = self._unwritten if only is None else self._unwritten.keys() & set(only)
            some = {claim: self._unwritten[claim] for claim in chosen}
            if not some:
                return
            version = self._queues.ids.token()
            by_job = {claim.job_id: progress for claim, progress in some.items()}
            reports.write(self._queues.store, by_job, version=version)
            self._unwritten = {
                claim: progress for claim, progress in self._unwritten.items() if claim not in some
            }

    def forget(self, claims: Collection[Claim]) -> None:
        """Drop what was not written of claims: they were lost, and others may report now."""
        with self._guard:
            for claim in claims:
                self._unwritten.pop(claim, None)

    def last(self, jobs: Sequence[Job]) -> dict[JobId, Progress]:
        """Read how far jobs had come in the claims before their present ones."""
        store = self._queues.store
        found = {job.id: reports.read(store, job.id) for job in jobs if job.fence > 1}
        return {job_id: progress for job_id, progress in found.items() if progress is not None}
