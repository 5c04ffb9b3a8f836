"""Progress of running jobs, kept for a limited time.

There is one record for each job. It names the fence of the claim that wrote it, and each write is
conditional on the previous version: reports of an older claim are refused once a later claim has
opened the record (rule L2).
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

from dueline.core.clock import DAY_US
from dueline.core.codec import decode, encode
from dueline.core.job import JobId
from dueline.core.store import NO_VERSION, Commit, Group, Put, Records
from dueline.tasks.progress import Progress, read_meta

KEEP_US = DAY_US
"""How long the last report of a job is kept, whether it has ended or waits for a retry."""

_KEY = "last"


@dataclass(frozen=True, slots=True)
class _Record:
    """A stored report; at_us is 0 if the record was only opened."""

    done: float
    total: float
    note: str
    at_us: int
    fence: int = 0
    meta: str = ""


class Known(NamedTuple):
    """A job's record as it was read; 0, NO_VERSION and None if it does not exist."""

    progress: Progress | None
    fence: int
    version: bytes

    def is_later_than(self, fence: int, at_us: int) -> bool:
        """Return whether a later claim wrote it, or the same one wrote a later report.

        A handler that ends its job in a transaction writes its last report there.
        """
        reported_us = 0 if self.progress is None else self.progress.at_us
        return (self.fence, reported_us) > (fence, at_us)


def place_of(job_id: JobId) -> str:
    """Return a partition for the job alone: workers that report at the same time do not contend."""
    return f"progress/{job_id.hex()}"


def look(records: Records, job_id: JobId) -> Known:
    """Return a job's progress, the claim that reported it, and the record's version."""
    for record in records.read(place_of(job_id), after=None, limit=1):
        stored = decode(record.value, _Record)
        progress = Progress(stored.done, stored.total, stored.note, stored.at_us, stored.meta)
        return Known(progress if stored.at_us else None, stored.fence, record.version)
    return Known(None, 0, NO_VERSION)


def read(records: Records, job_id: JobId) -> Progress | None:
    """Return a job's progress; None if it has not reported any, or long ago."""
    progress = look(records, job_id).progress
    return progress if progress is not None and progress.is_reported else None


def read_notes(records: Records, job_id: JobId) -> dict[str, Any]:
    """Return what the handler of a job noted with `set_meta`."""
    return read_with_notes(records, job_id)[1]


def read_with_notes(records: Records, job_id: JobId) -> tuple[Progress | None, dict[str, Any]]:
    """Return a job's progress, and what its handler noted, by one read."""
    progress = look(records, job_id).progress
    if progress is None:
        return None, {}
    return progress if progress.is_reported else None, read_meta(progress.meta)


def written(
    job_id: JobId,
    progress: Progress | None,
    *,
    fence: int,
    now_us: int,
    expect: bytes | None,
    version: bytes,
) -> Group:
    """Return the write of a report under a claim; without a report it only opens the record.

    Args:
        job_id: The job.
        progress: The report.
        fence: The fence of the claim.
        now_us: The store's time.
        expect: The version that the record has; None for any.
        version: The version that it gets.
    """
    said = progress or Progress(0, 0, "", 0)
    value = encode(_Record(said.done, said.total, said.note, said.at_us, fence, said.meta))
    until_us = (said.at_us or now_us) + KEEP_US
    put = Put(_KEY, version, value, expect=expect, expires_us=until_us)
    return Group(commits=(Commit(place_of(job_id), (put,)),))
