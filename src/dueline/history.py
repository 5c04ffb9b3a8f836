"""What happened, as a stream."""

from collections.abc import Iterator

from dueline.attempt import Attempt, Crashed, Ended
from dueline.codec import decode, encode
from dueline.job import Job
from dueline.store import Row, Streams

HISTORY_SUFFIX = "!history"
_PAGE = 1000


def attempt_row(ended: Ended, *, outcome: str, error: str, row_id: bytes) -> Row:
    """Make the row of an attempt that a verdict ends.

    Args: row_id: 16 bytes; the same for every repeat of this row.
    """
    job, lane = ended.job, ended.job.lane
    attempt = Attempt(
        job=job.id.hex(),
        task=job.task,
        queue=lane.queue,
        tenant=lane.tenant,
        priority=lane.priority,
        enqueued_us=job.enqueued_us,
        due_us=job.due_us,
        claimed_us=job.claimed_us,
        started_us=ended.started_us,
        ended_us=ended.ended_us,
        outcome=outcome,
        error=error,
        worker=job.worker,
        fence=job.fence,
    )
    stream = lane.queue + HISTORY_SUFFIX
    return Row(stream, lane.shard, ended.ended_us, row_id, encode(attempt))


def died_row(before: Job, *, row_id: bytes) -> Row:
    """Make the row of an attempt whose worker died: the next claimer writes it.

    Args: before: the row as the dead worker's claim left it; the attempt ended with its lease.
    """
    crash = Crashed("The worker died, or lost its lease.")
    ended = Ended(before, crash, started_us=0, ended_us=before.at_us)
    return attempt_row(ended, outcome="crashed", error=crash.detail, row_id=row_id)


def attempts(streams: Streams, queue: str, shards: int) -> Iterator[Attempt]:
    """Read a queue's attempts, shard by shard, each in the order of their ends."""
    for shard in range(shards):
        after = None
        while True:
            page = streams.tail(queue + HISTORY_SUFFIX, shard, after=after, limit=_PAGE)
            for row in page.rows:
                yield decode(row.body, Attempt)
            if len(page.rows) < _PAGE:
                break
            after = page.after
