"""Stores the items of a batch, slice by slice.

The head of the batch decides (`decisions.py`): it counts the items that are stored. The process
that replaces the head that it has read stores the next slice (rule I1). Jobs have the ids of their
positions, so each item is one job, whichever process stores it, and however often.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from dueline.batches import ends
from dueline.batches.records import Batch, Head, head_of, packed, put_head, put_keys
from dueline.core.batch_ids import ids_at, position_of
from dueline.core.engine import Engine
from dueline.core.errors import Unknown
from dueline.core.ids import derived
from dueline.core.job import Job
from dueline.core.store import Group, Put
from dueline.jobs.decisions import Cell, Decision, complete, decide
from dueline.jobs.queue import EnqueueRequest, Queues


def store_slice(
    queues: Queues, batch: Batch, head: Head, request: EnqueueRequest, *, check: int, keys: bytes
) -> tuple[Head, Sequence[Job]] | None:
    """Store the next items of a batch.

    Args:
        queues: The queues.
        batch: The batch.
        head: The head, as it was read, or as the last call returned it.
        request: The calls.
        check: The check sum of all items, with these.
        keys: The digests of the items' keys; empty if they have none.

    Returns:
        The head and the rows; None if another process may have stored the items. Read it again.

    Raises:
        BadInput: A value is out of range; nothing was written.
        QuotaExceeded: There is no room; nothing was written.
        StoreUnavailable: Nothing was written, unless `current_head` finds the slice.
    """
    engine, first = queues.engine, head.items
    ids = ids_at(batch.id, range(first, first + len(request.bodies)))
    rows = queues.rows(request._replace(job_ids=ids))
    opened = engine.ids.token()
    after = Head(first + len(rows), check, engine.time.latest_us(), derived(opened, 0))
    decision = _decision(batch, head.version, replace(after, version=opened), rows, keys)
    try:
        if not decide(engine.recording_store, [decision])[0]:
            return None
    except Unknown:
        return None
    engine.announce(rows)
    return after, rows


def current_head(engine: Engine, batch: Batch, *, idle_us: int = 0) -> Head:
    """Return the head of a batch; store what another process has left of its last slice.

    idle_us: Time since the slice was decided for which it is left to that process.
    """
    while True:
        head = head_of(engine.store, batch.id)
        if not head.rows or engine.time.latest_us() - head.decided_us < idle_us:
            return head
        rows = head.carried()
        decision = _decision(batch, None, head, rows, head.keys)
        carried = decision.carried._replace(jobs=_missing(engine, batch, rows))
        complete(engine.recording_store, decision._replace(carried=carried), age_us=0)
        engine.announce(rows)


def _decision(
    batch: Batch, expect: bytes | None, opened: Head, rows: Sequence[Job], keys: bytes
) -> Decision:
    """Return the decision that stores a slice.

    opened: The head afterwards, with the version that it has until all rows are stored.
    """
    closed = replace(opened, version=derived(opened.version, 0), rows=b"", keys=b"")
    first = opened.items - len(rows)
    commits = (put_keys(batch.id, first, keys, closed),) if keys else ()
    write = put_head(batch.id, closed, expect or b"")
    return Decision(
        write, Group(commits=commits, jobs=rows), partial(_cell, batch, expect, opened, rows, keys)
    )


def _cell(
    batch: Batch, expect: bytes | None, opened: Head, rows: Sequence[Job], keys: bytes
) -> Cell:
    carrying = replace(opened, rows=opened.rows or packed(rows), keys=keys)
    closed = replace(opened, version=derived(opened.version, 0), rows=b"", keys=b"")
    (put,) = put_head(batch.id, closed, b"").writes
    assert isinstance(put, Put)
    return Cell(put_head(batch.id, carrying, expect or b""), put)


def _missing(engine: Engine, batch: Batch, rows: Sequence[Job]) -> Sequence[Job]:
    """Return the rows that are neither in the store nor ended (rule I2)."""
    present = engine.store.find([row.id for row in rows])
    missing = [row for row, there in zip(rows, present, strict=True) if there is None]
    ended = ends.read(engine.store, batch.id)  # after the rows: ends are written before they go
    return [row for row in missing if not ends.has_ended(ended, position_of(row.id))]
