"""Batches of prepared statements, bound by the columns' own encoders.

The driver's `bind` checks each value and takes 23 us for a claim of one row, 12 us for a drop;
the encoders that it calls take 4 and 2 (November 2026). A worker binds two rows a job.
"""

from collections.abc import Callable, Sequence
from typing import Any

from cassandra.query import BatchStatement, BatchType, BoundStatement

Prepare = Callable[[str], Any]
"""Gives the driver's prepared statement for a text."""


def batch_of(calls: Sequence[tuple[str, Sequence[object]]], prepare: Prepare) -> BatchStatement:
    """Bind statements and their values into one unlogged batch."""
    batch = BatchStatement(BatchType.UNLOGGED)
    shapes: dict[str, tuple[BoundStatement, list[Callable[[object, int], bytes]], int]] = {}
    for text, values in calls:
        if text not in shapes:
            prepared = prepare(text)
            encoders = [column.type.serialize for column in prepared.column_metadata]
            shapes[text] = BoundStatement(prepared), encoders, prepared.protocol_version
        bound, encoders, protocol = shapes[text]
        bound.values = [
            None if value is None else encode(value, protocol)
            for encode, value in zip(encoders, values, strict=True)
        ]
        batch.add(bound)  # which keeps the values, not the statement
    return batch
