"""Outcomes of ended jobs, kept for a limited time.

An outcome has a time to live; a live job never has one (rule A5).
"""

from collections.abc import Collection, Iterable, Mapping, Sequence

from dueline.core.attempt import Outcome
from dueline.core.codec import decode, encode
from dueline.core.ids import created_us
from dueline.core.job import JobId
from dueline.core.pagination import records_in
from dueline.core.store import NO_VERSION, Commit, Delete, Put, Records, Write

_SLICE_US = 60_000_000
_SLICES = 4
_PAGE = 200


def _place(job_id: JobId) -> tuple[str, str]:
    """Return where a result is stored; a partition holds a quarter of a minute's jobs."""
    minute = created_us(job_id) // _SLICE_US
    return f"results/{minute}/{job_id[-1] % _SLICES}", job_id.hex()


def keep(job_id: JobId, outcome: Outcome, *, keep_us: int) -> Commit:
    """Return the write that keeps an outcome until `keep_us` after the job ended.

    Its version depends on that time: a dead job that is retried ends at another time, and a repeat
    writes the same.
    """
    partition, key = _place(job_id)
    ended_us = outcome.ended_us
    put = Put(key, ended_us.to_bytes(16), encode(outcome), None, ended_us + keep_us)
    return Commit(partition, (put,))


def keep_done(
    jobs: Iterable[JobId], ended_us: Iterable[int], values: Iterable[bytes], *, keep_us: int
) -> list[Commit]:
    """Return the writes that `keep` makes for each of several successful jobs.

    Args:
        jobs: The jobs.
        ended_us: When each ended.
        values: The result of each.
        keep_us: How long they are kept.
    """
    puts: dict[str, list[Put]] = {}
    for job_id, at_us, value in zip(jobs, ended_us, values, strict=True):
        partition, key = _place(job_id)
        body = encode(Outcome("done", at_us, value.decode()))
        put = Put(key, at_us.to_bytes(16), body, None, at_us + keep_us)
        puts.setdefault(partition, []).append(put)
    return [Commit(partition, some) for partition, some in puts.items()]


def absent(job_id: JobId) -> Commit:
    """Return the write that changes nothing, and holds while no outcome of a job is kept."""
    partition, key = _place(job_id)
    return Commit(partition, (Delete(key, expect=NO_VERSION),))


def merged(commits: Sequence[Commit]) -> list[Commit]:
    """Join the writes to one partition, so that each is one call."""
    by_partition: dict[str, list[Write]] = {}
    for commit in commits:
        by_partition.setdefault(commit.partition, []).extend(commit.writes)
    return [Commit(partition, writes) for partition, writes in by_partition.items()]


def read(records: Records, job_id: JobId) -> Outcome | None:
    """Return how a job ended; None if it has not ended or no outcome is kept."""
    partition, key = _place(job_id)
    # Keys are hexadecimal, so nothing sorts between the key less its last digit and the key
    # but its neighbours: a read past it that is limited to 16 rows always holds the key.
    for record in records.read(partition, after=key[:-1], limit=16):
        if record.key == key:
            return decode(record.value, Outcome)
    return None


def read_many(records: Records, jobs: Collection[JobId]) -> Mapping[JobId, Outcome]:
    """Return how jobs ended; those without a kept outcome are omitted.

    Each partition is read from its first to its last job.
    """
    places: dict[str, dict[str, JobId]] = {}
    for job_id in jobs:
        partition, key = _place(job_id)
        places.setdefault(partition, {})[key] = job_id
    found: dict[JobId, Outcome] = {}
    for partition, wanted in places.items():
        first, last = min(wanted), max(wanted)
        for record in records_in(records, partition, after=first[:-1], page_size=_PAGE):
            if record.key > last:
                break
            if record.key in wanted:
                found[wanted[record.key]] = decode(record.value, Outcome)
    return found
