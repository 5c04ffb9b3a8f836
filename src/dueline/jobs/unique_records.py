"""Records of the jobs that hold unique keys.

There is one record for each queue and key, and for each key of workflows. The job that holds the
key of a workflow is its last step. Its version is the id of the job that holds the key,
and its value is that job's row as it was enqueued. An id cannot be derived from a key, so it is
fixed here (rule B2) before the row is added, and a process that finds the record without the row
can add that very row. Records of keys held for a period expire; others are deleted when their job
ends. One that is left behind is stale if its job is not live.
"""

from dataclasses import replace
from hashlib import blake2b

from dueline.core.call_options import CallOptions, Rule, StepPlace, is_step, read_options
from dueline.core.codec import decode, encode
from dueline.core.job import Job, JobId
from dueline.core.lane import Lane, living_queue
from dueline.core.store import NO_VERSION, Commit, Delete, Put, Records

_SLICES = 16
_DIGEST_BYTES = 16
_ELSEWHERE_US = 0
_CARRIED_US = 1
_FOREVER_US = 2**60


def scope_of(job: Job) -> str:
    """Return the queue in which a job's key is unique; empty for that of a workflow."""
    return "" if is_step(job) else living_queue(job.lane.queue)


def inserted(job: Job) -> tuple[Job, ...]:
    """Return the rows that are inserted with a key: for a workflow, also that of its first step.

    All others come after that step, so a workflow that has not its key never starts (rule B4).
    """
    place = read_options(job.opts).step
    if place is None:
        return (job,)
    number = place.number - 1
    opts = CallOptions(step=StepPlace(number, 1)).to_bytes()
    first = JobId((int.from_bytes(job.id) - 1).to_bytes(16))
    return (job._replace(id=first, opts=opts), job)


def read(records: Records, scope: str, key: str) -> Job | None:
    """Return the row of the job that holds a key, as it was enqueued; None if no job does."""
    partition, place = _place(scope, key)
    # As with results: only this key's neighbours lie between it and it less its last digit.
    for record in records.read(partition, after=place[:-1], limit=16):
        if record.key == place:
            return decode(record.value, Job)
    return None


def take(job: Job, rule: Rule, *, expect: bytes) -> Commit:
    """Return the write that gives a key to a job; expect: the id of the present holder."""
    partition, place = _place(scope_of(job), rule.key)
    expires_us = job.enqueued_us + rule.within_us if rule.within_us else None
    put = Put(place, job.id, encode(job), expect=expect, expires_us=expires_us)
    return Commit(partition, (put,))


def carry(job: Job, to: Lane, rule: Rule, *, expect: bytes) -> Commit:
    """Return the write that gives a job its key in the queue to which it moves.

    No process adds the row of this record: the job has one, in either queue (rule O4).
    """
    there = job._replace(lane=to)
    commit = take(there, rule, expect=expect)
    (put,) = commit.writes
    assert isinstance(put, Put)
    value = encode(there._replace(enqueued_us=_CARRIED_US))
    return Commit(commit.partition, (put._replace(value=value),))


def is_left_behind(original: Job, row: Job) -> bool:
    """Return whether the record of a job is that of a queue from which it has moved (rule O4)."""
    return scope_of(original) != scope_of(row) and original.enqueued_us != _CARRIED_US


def elsewhere(put: Put) -> Put:
    """Return the record of a job whose row is not in this store, but in one that moves here.

    The job holds the key until its row arrives, or the record is deleted: as one that holds it for
    a period, and so long ago that no process adds its row (rule X6).
    """
    job = decode(put.value, Job)
    options = read_options(job.opts)
    rule = options.unique or Rule("")
    held = replace(rule, within_us=rule.within_us or _FOREVER_US)
    opts = options.changed(unique=held).to_bytes()
    value = encode(job._replace(enqueued_us=_ELSEWHERE_US, opts=opts))
    return Put(put.key, put.version, value, expect=NO_VERSION, expires_us=put.expires_us)


def is_elsewhere(job: Job) -> bool:
    """Return whether the record of a job says that its row is in the other store."""
    return job.enqueued_us == _ELSEWHERE_US


def release(job: Job, rule: Rule) -> Commit:
    """Return the write that deletes a key's record, if this job still holds the key."""
    partition, place = _place(scope_of(job), rule.key)
    return Commit(partition, (Delete(place, expect=job.id),))


def place_of(job: Job, rule: Rule) -> str:
    """Return the place of a job's key among all keys."""
    return "/".join(_place(scope_of(job), rule.key))


def _place(scope: str, key: str) -> tuple[str, str]:
    digest = blake2b(key.encode(), digest_size=_DIGEST_BYTES)
    return f"unique/{scope}/{digest.digest()[0] % _SLICES}", digest.hexdigest()
