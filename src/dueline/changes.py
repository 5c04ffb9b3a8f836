"""Where jobs that wait come to lie."""

from hashlib import blake2b

from dueline.job import Job, Token
from dueline.lane import bucket_of
from dueline.store import Move


def changed(
    row: Job,
    *,
    at_us: int | None = None,
    priority: int | None = None,
    token: Token,
    width_us: int,
) -> Move:
    """Make the verdict that changes when, or how urgently, a waiting job runs.

    Another priority is another lane, to which the row is carried (rule P6). What the caller asked
    for at first, `due`, stays.

    Args: row: as it was read. token: fresh. width_us: of the queue's buckets.
    """
    assert not row.outcome, "what has ended accepts nothing but its completion"
    assert not row.is_claimed()
    if at_us is None:
        at_us = row.at_us
    bucket = bucket_of(at_us, width_us)
    home = None
    if priority is not None and priority != row.lane.priority:
        home = row.lane._replace(priority=priority, bucket=bucket)
    return Move(row, at_us, token, bucket, row.errors, row.crashes, row.alone,
                error=row.error, to=home)  # fmt: skip


def spread(job: Job, window_us: int, *, width_us: int) -> Job:
    """Put a job that is to be born somewhere into its window, evenly, by what its id draws."""
    chance = int.from_bytes(blake2b(job.id, digest_size=8).digest())
    pos_us = job.pos_us + (chance * window_us >> 64)
    lane = job.lane._replace(bucket=bucket_of(pos_us, width_us))
    return job._replace(lane=lane, pos_us=pos_us, at_us=pos_us)
