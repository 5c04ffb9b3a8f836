"""What happened, as a stream."""

from collections.abc import Iterator

from dueline.attempt import Attempt, Crashed, Ended
from dueline.codec import decode, encode
from dueline.ids import derived
from dueline.job import Job
from dueline.store import Row, Streams

HISTORY_SUFFIX = "!history"
_PAGE = 1000
_TOLD_MAX = 100_000
"""How far back repeats are known, in rows."""


def attempt_of(ended: Ended, *, outcome: str, error: str) -> Attempt:
    """Say what history keeps of an attempt that a verdict ends."""
    job, lane = ended.job, ended.job.lane
    return Attempt(
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


def row_of(attempt: Attempt, job: Job) -> Row:
    """Make an attempt's row: one for each claim, the same for every repeat."""
    stream = attempt.queue + HISTORY_SUFFIX
    row_id = derived(job.id, attempt.fence)
    return Row(stream, job.lane.shard, attempt.ended_us, row_id, encode(attempt))


def died(
    before: Job, *, outcome: str = "crashed", error: str = "The worker died, or lost its lease."
) -> Attempt:
    """Say what history keeps of an attempt whose worker died: the next claimer writes it.

    Args: before: the row as the dead worker's claim left it; the attempt ended with its lease.
    """
    ended = Ended(before, Crashed(error), started_us=0, ended_us=before.at_us)
    return attempt_of(ended, outcome=outcome, error=error)


def attempts(
    streams: Streams, queue: str, shards: int, *, since_us: int | None = None
) -> Iterator[Attempt]:
    """Read a queue's attempts, shard by shard, each in the order of their ends.

    A claim is told of once: who ended it too late may have told of it beside its next claimer.
    """
    for shard in range(shards):
        told: set[bytes] = set()
        after = None if since_us is None else (since_us, b"")
        while True:
            page = streams.tail(queue + HISTORY_SUFFIX, shard, after=after, limit=_PAGE)
            for row in page.rows:
                if row.id in told:
                    continue
                if len(told) >= _TOLD_MAX:
                    told.clear()
                told.add(row.id)
                yield decode(row.body, Attempt)
            if len(page.rows) < _PAGE:
                break
            after = page.after
