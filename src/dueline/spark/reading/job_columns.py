"""Columns of waiting jobs, as a store gives them by column."""

from array import array
from collections.abc import Iterator
from contextlib import suppress
from typing import Final

import pyarrow as pa
from pyarrow import compute

from dueline.core.call_options import expires_by
from dueline.core.errors import StoreCorrupt
from dueline.core.job import PAUSED_US, Job, JobId, State
from dueline.core.job_columns import Column, JobColumns, Packed, Same
from dueline.core.lane import DEAD_SUFFIX, Lane, living_queue, tenant_of
from dueline.core.store import Place, Store
from dueline.core.store_capabilities import walk_columns
from dueline.spark.reading import schemas
from dueline.spark.reading.history_columns import digits_of
from dueline.spark.reading.partitions import LaneSlice

_OF_LANE: Final = ("queue", "shard", "bucket", "priority", "tenant")
_OF_JOB: Final = {
    **{name.removesuffix("_us"): name for name in Job._fields},
    "job_id": "id", "attempt": "fence", "payload": "body", "options": "opts",
}  # fmt: skip
"""Fields of a job, by the column."""

_OF_STATE: Final = ("at_us", "state", "errors", "crashes", "opts")
_TYPES: Final = {
    "task": pa.string(), "worker": pa.string(), "error": pa.string(),
    "body": pa.binary(), "opts": pa.binary(),
}  # fmt: skip
"""Types of fields that are no numbers."""

_NULLS: Final = {"claimed": 0, "options": b""}
"""Values that tables show as null."""

_ID_BYTES: Final = 16


def batches_of(
    store: Store, part: LaneSlice, schema: pa.Schema, *, now_us: int, page: int
) -> Iterator[pa.RecordBatch]:
    """Yield the jobs of a slice, a batch for each page.

    Args:
        store: The store.
        part: Rows of a lane.
        schema: The columns to read.
        now_us: The time of their states.
        page: Number of rows of a batch.
    """
    names = frozenset(
        field
        for name in schema.names if name not in _OF_LANE
        for field in (_OF_STATE if name == "state" else (_OF_JOB[name],))
    )  # fmt: skip
    after, until = _place(part.after), _place(part.until)
    different: frozenset[str] = frozenset()
    while True:
        columns = walk_columns(
            store, part.lane, names, after=after, until=until, limit=page, different=different
        )
        if columns.many:
            yield batch_of(part.lane, columns, schema, now_us=now_us)
        if columns.after is None:
            return
        after, different = columns.after, columns.different()


def _place(position: tuple[int, bytes] | None) -> Place | None:
    return None if position is None else (position[0], JobId(position[1]))


def batch_of(lane: Lane, page: JobColumns, schema: pa.Schema, *, now_us: int) -> pa.RecordBatch:
    """Convert a page of jobs of a lane to a batch."""
    values = (living_queue(lane.queue), *lane[1:4], tenant_of(lane))
    shown = dict(zip(_OF_LANE, values, strict=True))

    def make(name: str) -> pa.Array:
        kind = schemas.ARROW["jobs"][name]
        if name in shown:
            return pa.repeat(pa.scalar(shown[name], kind), page.many)
        if name == "state":
            return _states(lane, page, now_us)
        if name == "job_id":
            return digits_of(_joined(page.columns["id"], page.many), _ID_BYTES)
        column = _column(page, _OF_JOB[name])
        if name == "at":  # of a paused job, where it would be
            is_held = compute.greater_equal(column, PAUSED_US)
            column = compute.subtract(column, compute.if_else(is_held, PAUSED_US, 0))
        if name in _NULLS:
            column = compute.if_else(compute.equal(column, _NULLS[name]), None, column)
        return column.cast(kind)

    return schemas.batch_of(schema, make)


def _joined(ids: Column, many: int) -> bytes:
    if isinstance(ids, Packed):
        return ids.joined
    return ids.value * many if isinstance(ids, Same) else b"".join(ids)


def _column(page: JobColumns, name: str) -> pa.Array:
    """Return a field of jobs in the type of its values."""
    column, kind = page.columns[name], _TYPES.get(name, pa.int64())
    match column:
        case Same(value):
            return pa.repeat(pa.scalar(value, kind), page.many)
        case Packed(joined, lengths) if pa.types.is_int64(kind):
            numbers = array("q", joined)
            numbers.byteswap()
            return pa.Array.from_buffers(kind, page.many, [None, pa.py_buffer(numbers)])
        case Packed(joined, lengths):
            each = array("i", bytes(4) + lengths)
            each.byteswap()
            sizes = pa.Array.from_buffers(pa.int32(), page.many + 1, [None, pa.py_buffer(each)])
            ends = compute.cumulative_sum(sizes).buffers()[1]
            return pa.Array.from_buffers(kind, page.many, [None, ends, pa.py_buffer(joined)])
    return pa.array(column, kind)


def _states(lane: Lane, page: JobColumns, now_us: int) -> pa.Array:
    """Return the state of each job, as `status_of` does."""
    if lane.queue.endswith(DEAD_SUFFIX):
        return pa.repeat("dead", page.many)
    at_us, state, errors, crashes, opts = (_column(page, name) for name in _OF_STATE)
    is_due = compute.less_equal(at_us, now_us)
    is_claimed = compute.is_in(state, pa.array([State.CLAIMED, State.STARTED], pa.int64()))
    has_failed = compute.greater(compute.add(errors, crashes), 0)
    waits = compute.if_else(has_failed, "retrying", "scheduled")
    shown = compute.if_else(is_due, "ready", waits)
    is_held = compute.greater_equal(at_us, PAUSED_US)
    if page.columns["opts"] != Same(b""):
        known = opts.dictionary_encode()
        ends = [_is_past(text, now_us) for text in known.dictionary.to_pylist()]
        is_expired = pa.array(ends, pa.bool_()).take(known.indices)
        shown = compute.if_else(is_expired, "expired", shown)
    shown = compute.if_else(is_held, "paused", shown)
    claimed = compute.if_else(is_due, "ready", "running")
    return compute.if_else(is_claimed, claimed, shown)


def _is_past(opts: bytes, now_us: int) -> bool:
    with suppress(StoreCorrupt):  # the worker that claims it reports that
        return expires_by(opts, now_us)
    return False
