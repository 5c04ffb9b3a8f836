"""How the queue says that jobs ended."""

from collections.abc import Sequence

from dueline.api.application import Dueline
from dueline.core.job import Job, JobId
from dueline.core.job_status import status_of
from dueline.jobs import results
from simulation.judge import Final


def finals_of(app: Dueline, jobs: Sequence[str]) -> dict[str, Final]:
    """Tell how some jobs ended, or how they stand, by their ids in hexadecimal."""
    ids = [JobId(bytes.fromhex(job)) for job in jobs]
    rows = zip(ids, app.store.find(ids), strict=True)
    return {job.hex(): _final(app, job, row) for job, row in rows}


def _final(app: Dueline, job_id: JobId, row: Job | None) -> Final:
    if row is not None:
        return Final(status_of(row, app.queues.engine.time.latest_us()))
    outcome = results.read(app.store, job_id)
    if outcome is None:
        return Final("gone")
    return Final(outcome.state, int(outcome.value) if outcome.value else None)
