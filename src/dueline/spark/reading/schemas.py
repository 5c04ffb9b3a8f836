"""Tables and their Arrow columns."""

from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyarrow import compute

from dueline.core.errors import BadInput
from dueline.core.job import Job
from dueline.core.job_status import status_of
from dueline.core.lane import DEAD_SUFFIX, living_queue, tenant_of
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
_ARROW: Final = {
    table: {name: TYPES[kind] for name, kind in columns.items()}
    for table, columns in COLUMNS.items()
}

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
        if not _can_be_read(_ARROW[table][field.name], field.type):
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


def batch_of_jobs(jobs: Sequence[Job], schema: pa.Schema, *, now_us: int) -> pa.RecordBatch:
    """Convert jobs to a batch, column by column."""
    cells: dict[str, Sequence[Any]] = dict(zip(Job._fields, zip(*jobs, strict=True), strict=True))
    lanes = set(cells["lane"])
    shown = {lane: (living_queue(lane.queue), *lane[1:4], tenant_of(lane)) for lane in lanes}
    of_lanes = zip(*map(shown.__getitem__, cells["lane"]), strict=True)
    cells |= zip(("queue", "shard", "bucket", "priority", "tenant"), of_lanes, strict=True)

    def make(name: str) -> pa.Array:
        column, kind = cells[_OF_JOB.get(name, name)], _ARROW["jobs"][name]
        if name == "options":
            column = [opts.decode() or None for opts in column] if any(column) else [None]
        elif name == "claimed":
            column = [us or None for us in column] if any(column) else [None]
        if column.count(column[0]) == len(column):
            return pa.repeat(pa.scalar(column[0], kind), len(jobs))
        return pa.array(column, kind)

    makes: dict[str, Make] = {
        "job_id": lambda _: history_columns.digits_of(b"".join(cells["id"]), 16),
        "state": lambda _: _states(jobs, cells, now_us),
    }
    return _batch(schema, makes, make)


_OF_JOB: Final = {
    **{name.removesuffix("_us"): name for name in Job._fields},
    "attempt": "fence", "payload": "body", "options": "opts",
}  # fmt: skip
"""Fields of a job, by the column."""


def _states(jobs: Sequence[Job], cells: Mapping[str, Sequence[Any]], now_us: int) -> pa.Array:
    """Return the state of each job, as `status_of` does."""
    special = (
        any(cells["opts"])
        or any(cells["state"])
        or any(lane.queue.endswith(DEAD_SUFFIX) for lane in set(cells["lane"]))
    )
    if special:
        return pa.array([status_of(job, now_us) for job in jobs], pa.string())
    failures = compute.add(pa.array(cells["errors"]), pa.array(cells["crashes"]))
    return compute.if_else(
        compute.less_equal(pa.array(cells["at_us"]), now_us),
        "ready",
        compute.if_else(compute.greater(failures, 0), "retrying", "scheduled"),
    )


def batch_of_values(
    some: Sequence[Mapping[str, Any]], schema: pa.Schema, *, table: str
) -> pa.RecordBatch:
    """Convert rows, given as values by column, to a batch."""

    def make(name: str) -> pa.Array:
        return pa.array([values.get(name) for values in some], _ARROW[table][name])

    return _batch(schema, {}, make)


def batches_of_table(rows: pa.Table, schema: pa.Schema, *, page: int) -> list[pa.RecordBatch]:
    """Return the requested columns of a table as batches of up to `page` rows."""
    return [
        _batch(schema, {}, batch.column)
        for batch in rows.combine_chunks().to_batches(max_chunksize=page)
    ]


def batch_of_rows(rows: Sequence[Row], schema: pa.Schema, *, table: str) -> pa.RecordBatch:
    """Convert rows of a stream to a batch; rows of a history are decoded.

    Raises:
        StoreCorrupt: A row of a history is not an attempt.
    """
    if table == "stream":
        makes: dict[str, Make] = {
            "stream": lambda _: pa.array([row.stream for row in rows]),
            "shard": lambda _: pa.array([row.shard for row in rows], pa.int32()),
            "at": lambda _: pa.array([row.at_us for row in rows], INSTANT),
            "id": lambda _: pa.array([row.id for row in rows], pa.binary()),
            "body": lambda _: pa.array([row.body for row in rows], pa.binary()),
        }
        return _batch(schema, makes, _none)
    shown = {name: _KIND.get(name, name) for name in schema.names}
    keys = {name: history_columns.key_of(other) for name, other in shown.items()}
    found = history_columns.columns(rows, frozenset(keys.values()))

    def make(name: str) -> pa.Array:
        column = history_columns.shown_column(shown[name], found[keys[name]])
        return column.cast(_ARROW[table][name])

    return _batch(schema, {}, make)


def _none(name: str) -> pa.Array:
    raise AssertionError(name)


def _batch(schema: pa.Schema, makes: Mapping[str, Make], otherwise: Make) -> pa.RecordBatch:
    """Build the requested columns; each is cast, since Spark checks only the first batch."""
    columns = [makes.get(field.name, otherwise)(field.name).cast(field.type) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
