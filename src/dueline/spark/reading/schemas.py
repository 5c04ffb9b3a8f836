"""Tables and their Arrow columns."""

from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from dueline.core.errors import BadInput
from dueline.core.store import Row
from dueline.spark.reading import history_columns

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

INSTANT: Final = pa.timestamp("us", "UTC")

COLUMNS: Final[Mapping[str, Mapping[str, str]]] = {
    "jobs": {
        "queue": "string", "shard": "int", "bucket": "bigint", "priority": "int",
        "tenant": "string", "job_id": "string", "task": "string", "state": "string",
        "due": "timestamp", "at": "timestamp", "enqueued": "timestamp", "attempt": "int",
        "errors": "int", "crashes": "int", "worker": "string", "claimed": "timestamp",
        "error": "string", "codec": "int", "payload": "binary", "options": "string",
    },
    "events": {
        "queue": "string", "shard": "int", "at": "timestamp", "id": "string",
        "job_id": "string", "kind": "string", "attempt": "int", "worker": "string",
        "due": "timestamp", "priority": "int", "tenant": "string", "error": "string",
        "detail": "string",
    },
    "attempts": {
        "queue": "string", "shard": "int", "at": "timestamp", "id": "string",
        "job_id": "string", "attempt": "int", "task": "string", "tenant": "string",
        "priority": "int", "enqueued": "timestamp", "due": "timestamp", "claimed": "timestamp",
        "started": "timestamp", "ended": "timestamp", "outcome": "string", "error": "string",
        "worker": "string", "codec": "int", "payload_bytes": "int", "payload": "binary",
        "digest": "string",
    },
    "stream": {
        "stream": "string", "shard": "int", "at": "timestamp", "id": "binary", "body": "binary",
    },
    "results": {
        "queue": "string", "shard": "int", "job_id": "string", "task": "string",
        "tenant": "string", "attempt": "int", "finished": "timestamp", "state": "string",
        "value": "string", "error": "string", "traceback": "string",
    },
    "shards": {
        "queue": "string", "stream": "string", "group": "string", "shard": "int",
        "takes_new": "boolean", "lanes": "int", "swept": "bigint", "closed": "bigint",
        "oldest_due": "timestamp", "backlog": "bigint", "epoch": "bigint", "owner": "string",
        "lease_until": "timestamp", "checkpoint": "string", "rows_read": "bigint",
    },
    "workers": {
        "worker": "string", "host": "string", "pid": "bigint", "version": "string",
        "queues": "strings", "tasks": "strings", "slots": "int", "held": "int",
        "started": "timestamp", "heartbeat": "timestamp", "clock_skew_us": "bigint",
    },
}  # fmt: skip
"""The columns of each table, with Spark's names of their types."""

TYPES: Final[Mapping[str, pa.DataType]] = {
    "string": pa.string(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "timestamp": INSTANT,
    "binary": pa.binary(),
    "boolean": pa.bool_(),
    "strings": pa.list_(pa.string()),
}
ARROW: Final = {
    table: {name: TYPES[kind] for name, kind in columns.items()}
    for table, columns in COLUMNS.items()
}
"""The types of the columns of each table."""

_KIND: Final = {"kind": "outcome"}
"""The column of events that is another one of attempts."""

Make = Callable[[str], pa.Array]


def struct_of(columns: Mapping[str, str]) -> "StructType":
    """Convert columns, with types by name, to Spark's schema."""
    from pyspark.sql.types import (  # noqa: PLC0415  (Arrow's columns need no Spark)
        ArrayType,
        BinaryType,
        BooleanType,
        IntegerType,
        LongType,
        StringType,
        StructField,
        StructType,
        TimestampType,
    )

    kinds = {
        "string": StringType(), "int": IntegerType(), "bigint": LongType(),
        "timestamp": TimestampType(), "binary": BinaryType(), "boolean": BooleanType(),
        "strings": ArrayType(StringType()),
    }  # fmt: skip
    return StructType([StructField(name, kinds[kind]) for name, kind in columns.items()])


def wanted(table: str, schema: "StructType") -> pa.Schema:
    """Return the Arrow schema of the requested columns.

    Raises:
        BadInput: The table lacks a column, or has it in another type.
    """
    from pyspark.sql.pandas.types import to_arrow_schema  # noqa: PLC0415  (loads pandas' part)

    for name in schema.fieldNames():
        if name not in COLUMNS[table]:
            near = get_close_matches(name, COLUMNS[table], n=1)
            raise BadInput(
                f"The table {table} has no column {name!r}.",
                hint=f"Did you mean {near[0]}?"
                if near
                else f"Use one of {', '.join(COLUMNS[table])}.",
            )
    asked = to_arrow_schema(schema, timezone="UTC")
    for field in asked:
        if not _can_be_read(ARROW[table][field.name], field.type):
            raise BadInput(
                f"The column {field.name} of {table} cannot be read as {field.type}.",
                hint=f"Its type is {COLUMNS[table][field.name]}.",
            )
    return asked


def _can_be_read(ours: pa.DataType, asked: pa.DataType) -> bool:
    """Return whether every value of a type fits another, so that no task fails later."""
    integers = pa.types.is_integer(ours) and pa.types.is_integer(asked)
    if integers:
        return bool(asked.bit_width >= ours.bit_width)
    if pa.types.is_list(ours):
        return bool(pa.types.is_list(asked) and asked.value_type == ours.value_type)
    return bool(ours == asked or (asked == pa.string() and ours == INSTANT))


def batch_of_values(
    rows: Sequence[Mapping[str, Any]], schema: pa.Schema, *, table: str
) -> pa.RecordBatch:
    """Convert rows, given as values by column, to a batch."""

    def make(name: str) -> pa.Array:
        return pa.array([values.get(name) for values in rows], ARROW[table][name])

    return batch_of(schema, make)


def batches_of_table(rows: pa.Table, schema: pa.Schema, *, page: int) -> list[pa.RecordBatch]:
    """Return the requested columns of a table as batches of up to `page` rows."""
    return [
        batch_of(schema, batch.column)
        for batch in rows.combine_chunks().to_batches(max_chunksize=page)
    ]


def batch_of_rows(rows: Sequence[Row], schema: pa.Schema, *, table: str) -> pa.RecordBatch:
    """Convert rows of a stream to a batch; rows of a history are decoded.

    Raises:
        StoreCorrupt: A row of a history is not an attempt.
    """
    if table == "stream":
        cells = dict(zip(COLUMNS["stream"], zip(*rows, strict=True), strict=True))
        return batch_of(schema, lambda name: pa.array(cells[name], ARROW["stream"][name]))
    shown = {name: _KIND.get(name, name) for name in schema.names}
    keys = {name: history_columns.key_of(other) for name, other in shown.items()}
    arrays = history_columns.columns(rows, frozenset(keys.values()))

    def make(name: str) -> pa.Array:
        column = history_columns.shown_column(shown[name], arrays[keys[name]])
        return column.cast(ARROW[table][name])

    return batch_of(schema, make)


def batch_of(schema: pa.Schema, make: Make) -> pa.RecordBatch:
    """Build the requested columns; each is cast, since Spark checks only the first batch."""
    columns = [make(field.name).cast(field.type) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
