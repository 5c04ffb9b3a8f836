"""How far running jobs have come, kept for a while."""

from collections.abc import Mapping

from dueline.clock import DAY_US
from dueline.codec import decode, encode
from dueline.job import JobId
from dueline.progress import Progress
from dueline.store import Commit, Group, Put, Records, Store

KEEP_US = DAY_US
"""How long the last report of a job is kept, whether it has ended or waits to be tried again."""

_KEY = "last"


def _place(job_id: JobId) -> str:
    """Name a partition of the job's own: workers that report at once never wait for each other."""
    return f"progress/{job_id.hex()}"


def write(store: Store, reports: Mapping[JobId, Progress], *, version: bytes) -> None:
    """Keep the last reports of jobs, all in one call. version: random, for the records."""
    groups = []
    for job_id, progress in reports.items():
        put = Put(_KEY, version, encode(progress), expires_us=progress.at_us + KEEP_US)
        groups.append(Group(commits=(Commit(_place(job_id), (put,)),)))
    store.together(groups)


def read(records: Records, job_id: JobId) -> Progress | None:
    """Read how far a job has come; None where it has not said so, or long ago."""
    for record in records.read(_place(job_id), after=None, limit=1):
        return decode(record.value, Progress)
    return None
