"""Records of the jobs that wait for the end of another one.

There is one partition for each job or workflow that others wait for: an entry for each of them,
and how the job ended, if its row said that others wait (rule J3). All of these expire, since no job
depends on them: each also checks for itself (rule J4).
"""

from collections.abc import Iterable, Sequence
from typing import Final

from dueline.core.attempt import Outcome
from dueline.core.call_options import has_dependents
from dueline.core.clock import DAY_US
from dueline.core.codec import decode, encode
from dueline.core.job import Job, JobId
from dueline.core.pagination import record_at, records_in
from dueline.core.store import Commit, Put, Records
from dueline.workflows.records import step_of

KEEP_US: Final = 30 * DAY_US
"""How long entries are kept after the last check, and ends after the job ended."""

_END: Final = "~end"  # after all ids


def record(job: Job, outcome: Outcome) -> list[Commit]:
    """Return the writes that tell dependents how a job ended; nothing if it has none.

    A job that is retried after it died ends later, and the latest end stays.
    """
    if not has_dependents(job):
        return []
    return [end(job.id, outcome)]


def end(job_id: JobId, outcome: Outcome) -> Commit:
    """Return the write that tells dependents how a job ended."""
    at_us = outcome.ended_us
    value = encode(Outcome(outcome.state, at_us, error=outcome.error))
    put = Put(_END, at_us.to_bytes(16), value, expires_us=at_us + KEEP_US, at_us=at_us)
    return Commit(_partition_of(job_id), (put,))


def end_of(records: Records, job_id: JobId) -> Outcome | None:
    """Read how a job ended that had dependents; None if nothing is recorded."""
    end = record_at(records, _partition_of(job_id), _END)
    return None if end is None else decode(end.value, Outcome)


def entries(awaited: JobId, dependents: Iterable[JobId], *, version: bytes, now_us: int) -> Commit:
    """Return the write that lists jobs that wait for a job or workflow."""
    puts = [Put(job_id.hex(), version, b"", expires_us=now_us + KEEP_US) for job_id in dependents]
    return Commit(_partition_of(awaited), puts)


def listed(records: Records, awaited: JobId) -> list[JobId]:
    """Read the jobs that wait, or waited, for a job or workflow."""
    keys = [record.key for record in records_in(records, _partition_of(awaited))]
    return [JobId(bytes.fromhex(key)) for key in keys if key != _END]


def awaited_with(ended: Iterable[Job]) -> Sequence[JobId]:
    """Return for which jobs and workflows others may wait, of jobs that may have ended."""
    awaited: dict[JobId, None] = {}
    for job in ended:
        if has_dependents(job):
            awaited[job.id] = None
            if (step := step_of(job)) is not None:
                awaited[step[0]] = None
    return list(awaited)


def _partition_of(awaited: JobId) -> str:
    return f"dependents/{awaited.hex()}"
