"""Which job holds a unique key.

One record a key, at a place made of the queue and the key. Its version is the id of the job that
holds the key, and its value that job's row as it was born: an id cannot be derived from a key, so
it is fixed here (rule B2) before the row is added, and whoever finds the record without the row
can add that very row. Records of keys held for a period expire; the others go when their job ends,
and one that is left behind says of itself that it is stale: its job is not alive.
"""

from hashlib import blake2b

from dueline.core.call_options import Rule
from dueline.core.codec import decode, encode
from dueline.core.job import Job
from dueline.core.lane import living_queue
from dueline.core.store import Commit, Delete, Put, Records

_SLICES = 16
_DIGEST_BYTES = 16


def read(records: Records, queue: str, key: str) -> Job | None:
    """Read which job holds a key, as it was born; None: nobody does."""
    partition, place = _place(queue, key)
    # As with results: only this key's neighbours lie between it and it less its last digit.
    for record in records.read(partition, after=place[:-1], limit=16):
        if record.key == place:
            return decode(record.value, Job)
    return None


def take(job: Job, rule: Rule, *, expect: bytes) -> Commit:
    """Make the write that gives a key to a job; expect: the id of the one that has it now."""
    partition, place = _place(job.lane.queue, rule.key)
    expires_us = job.enqueued_us + rule.within_us if rule.within_us else None
    put = Put(place, job.id, encode(job), expect=expect, expires_us=expires_us)
    return Commit(partition, (put,))


def release(job: Job, rule: Rule) -> Commit:
    """Make the write that lets go of a key, if this job still has it."""
    partition, place = _place(job.lane.queue, rule.key)
    return Commit(partition, (Delete(place, expect=job.id),))


def _place(queue: str, key: str) -> tuple[str, str]:
    queue = living_queue(queue)
    digest = blake2b(key.encode(), digest_size=_DIGEST_BYTES)
    return f"unique/{queue}/{digest.digest()[0] % _SLICES}", digest.hexdigest()
