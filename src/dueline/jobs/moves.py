"""Changes that move waiting jobs."""

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from types import MappingProxyType
from typing import NamedTuple

from dueline.core.call_options import awaited_by, order_of, read_options
from dueline.core.errors import Conflict
from dueline.core.job import Job, JobId, State, Token
from dueline.core.lane import Lane, bucket_of, lane_tenant, living_queue
from dueline.core.queue_settings import shard_of
from dueline.core.store import Move


class Change(NamedTuple):
    """A change to a waiting job; None keeps a value.

    Attributes:
      at_us: When it is due.
      carried: Fields of `Carried` that replace its own. Another priority is another lane, to which
          the row is moved unchanged (rule P6), so it cannot be combined with these.
    """

    at_us: int | None = None
    priority: int | None = None
    carried: Mapping[str, object] = MappingProxyType({})


def changed(row: Job, change: Change, *, token: Token, width_us: int) -> Move:
    """Return the verdict that changes a waiting job.

    Args:
        row: As it was read.
        change: The change.
        token: A fresh token.
        width_us: Width of the queue's buckets.
    """
    at_us, priority, carried = change
    assert not row.outcome, "what has ended accepts nothing but its completion"
    assert not row.is_claimed()
    if at_us is None:
        at_us = row.at_us
    bucket = bucket_of(at_us, width_us)
    home = None
    if priority is not None and priority != row.lane.priority:
        home = row.lane._replace(priority=priority, bucket=bucket)
    opts = None
    if carried:
        assert home is None, "what is carried keeps its options"
        opts = read_options(row.opts).changed(**carried).to_bytes()
    return Move(row, at_us, token, bucket, row.errors, row.crashes, row.alone,
                error=row.error, to=home, opts=opts, due_us=change.at_us)  # fmt: skip


def redriven(row: Job, now_us: int, *, token: Token, width_us: int) -> Move:
    """Return the verdict that runs a waiting or dead job now; a dead one counts from 0 again.

    A dead job waits for no others any more: it died since nobody knew how they had ended. One that
    others of its order key have passed comes after these (rule J9).
    """
    assert not row.outcome, "what has ended accepts nothing but its completion"
    bucket = bucket_of(now_us, width_us)
    if row.state != State.DEAD:
        at_us = min(row.at_us, now_us)  # one that is ready keeps its place
        return Move(row, at_us, token, bucket, row.errors, row.crashes, row.alone,
                    error=row.error, due_us=min(row.due_us, now_us))  # fmt: skip
    home = row.lane._replace(queue=living_queue(row.lane.queue), bucket=bucket)
    opts, order = None, order_of(row)
    if awaited_by(row) is not None or order is not None:
        again = None if order is None else order.again()
        opts = read_options(row.opts).changed(awaits=None, order=again).to_bytes()
    return Move(row, now_us, token, bucket, errors=0, crashes=0, to=home, opts=opts)


def conflict_error(job_id: JobId, word: str, status: str) -> Conflict:
    """Return the error for a job that cannot be changed in its present state."""
    hint = "See `dueline jobs explain`."
    if status == "paused":
        hint = f"Resume it first: `dueline jobs resume {job_id.hex()}`."
    return Conflict(f"The job {job_id.hex()} is {status} and cannot be {word}.", hint=hint)


def changeable(job_id: JobId, word: str, status: str, row: Job | None) -> Job:
    """Return the row of a waiting job; raise if it cannot be changed."""
    if row is None or status in ("dead", "running", "paused", "expired"):
        raise conflict_error(job_id, word, status)
    if row.is_claimed():
        raise conflict_error(job_id, word, "in the hands of a worker that does not answer")
    return row


def was_called(row: Job) -> bool:
    """Return whether a job's handler was called, and may have to be called again."""
    return row.state == State.STARTED or (row.crashes > 0 and row.state != State.DEAD)


def lanes_of_new_jobs(
    home: Lane, job_ids: Sequence[JobId], shards: int, limits: Sequence[Sequence[str]]
) -> Sequence[Lane]:
    """Return the lanes of new jobs that are alike except for their limits, by their ids."""
    by_shard = [home._replace(shard=shard) for shard in range(shards)]
    lanes = [by_shard[shard_of(job_id, shards)] for job_id in job_ids]
    if limits:
        tenants = [lane_tenant(home.tenant, names) for names in limits]
        lanes = [lane._replace(tenant=each) for lane, each in zip(lanes, tenants, strict=False)]
    return lanes


def spread(job: Job, window_us: int, *, width_us: int) -> Job:
    """Place a new job at random in its window; its id is the source of randomness."""
    return with_position(job, spread_us(job.id, job.pos_us, window_us), width_us=width_us)


def spread_us(job_id: JobId, pos_us: int, window_us: int) -> int:
    """Return the time at which a job starts that is spread over a window."""
    chance = int.from_bytes(blake2b(job_id, digest_size=8).digest())
    return pos_us + (chance * window_us >> 64)


def with_position(job: Job, pos_us: int, *, width_us: int) -> Job:
    """Place a new job at another time."""
    lane = job.lane._replace(bucket=bucket_of(pos_us, width_us))
    return job._replace(lane=lane, pos_us=pos_us, at_us=pos_us)
