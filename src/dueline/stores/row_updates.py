"""Rows after a claim or a move, for stores that compute them in Python."""

from typing import Final

from dueline.core.clock import SECOND_US
from dueline.core.job import MOVED, Job, State
from dueline.core.store import Lease, Move

HOP_AHEAD_US: Final = 5 * SECOND_US
"""Minimum delay for which a row moves to the position of its due time."""


def claimed(row: Job, lease: Lease) -> Job:
    """Return a row after a claim (rule P1); the lease of a prefetched one starts when it is due."""
    has_crashed = row.state == State.STARTED
    return row._replace(
        at_us=max(lease.now_us, row.at_us) + lease.duration_us,
        fence=row.fence + 1,
        token=lease.token,
        worker=lease.worker,
        claimed_us=lease.now_us,
        crashes=row.crashes + has_crashed,
        alone=row.alone or has_crashed,
        state=State.CLAIMED,
    )


def rewritten(row: Job, move: Move) -> Job:
    """Return a row with the columns that a move changes, in its old position."""
    cells = {name: getattr(move, name) for name in MOVED}
    if move.opts is not None:
        cells["opts"] = move.opts
    if move.due_us is not None:
        assert move.to is None, "a job that moves to another lane keeps its due time"
        cells["due_us"] = move.due_us
    return row._replace(**cells)


def is_carried(move: Move) -> bool:
    """Return whether a move is to another lane."""
    return move.to is not None and move.to != move.job.lane


def moved(move: Move) -> Job:
    """Return a row after a move: in its position, another one of its lane, or in lane `to`.

    The row moves to the position of its due time if that is before its own, or far after it. It
    also gets a new key if its options or its due time change, since a repeated insert would restore
    the old ones.
    A row with an outcome keeps its position: the ids of its effects are made from its key.
    """
    job = move.job
    row = rewritten(job, move)
    if move.outcome:
        assert move.to is None
        assert move.at_us >= job.pos_us, "a row with an outcome keeps its position"
        return row
    is_far = move.at_us > max(job.pos_us, job.claimed_us) + HOP_AHEAD_US
    is_other = (row.opts, row.due_us) != (job.opts, job.due_us)
    if is_carried(move) or is_far or move.at_us < job.pos_us or is_other:
        row = row._replace(lane=move.to or job.lane, pos_us=move.at_us, hop=job.hop + 1)
    return row
