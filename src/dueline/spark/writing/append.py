"""Batches of streaming queries in Delta tables, each once.

Spark's tasks write Parquet files into the table's folder. The driver commits them in one
transaction, together with the number of the batch. A driver that dies before the commit leaves
files that no reader sees and `vacuum` removes; after the commit, a repeated batch finds its number.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime
from functools import partial
from secrets import token_hex
from time import time_ns
from typing import Any, Final, NamedTuple
from urllib.parse import quote

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.fs import DeltaStorageHandler
from deltalake.transaction import AddAction
from pyarrow import compute, fs, parquet
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema

from dueline.core.errors import BadInput, ConfigError, Conflict

FILES: Final = "path string, size long, parts string, stats string"
ROWS_MAX: Final = 500_000
"""Rows of a file at most; a task holds them in memory."""

ROUNDS_MAX: Final = 5
_QUERY: Final = "sql.streaming.queryId"
_TEXT_MAX: Final = 32
"""Longer strings make no statistics."""

_REFUSED: Final = ("delta.constraints.", "delta.columnMapping.mode", "delta.generationExpression")
_PARTS: Final[Sequence[Callable[[pa.DataType], bool]]] = (
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_integer,
    pa.types.is_date,
    pa.types.is_boolean,
)


class Target(NamedTuple):
    """A table: its address, and the options of its object store, which may hold secrets."""

    address: str
    options: dict[str, str]

    def __repr__(self) -> str:
        """Return its address, without the options."""
        return f"Target({self.address!r})"


def append_once(
    batch_df: DataFrame,
    batch_id: int,
    table: str,
    *,
    query: str | None = None,
    partition_by: Sequence[str] = (),
    storage_options: Mapping[str, str] | None = None,
) -> bool:
    """Append a batch of a streaming query to a Delta table, exactly once; for `foreachBatch`.

    The table is created if it does not exist.

    Args:
        batch_df: The rows of the batch.
        batch_id: Its number.
        table: A path, or the address of a table in an object store (s3://, abfss://, gs://).
        query: Name under which the table stores the number of the last batch; by default the id
            of the query, which is the same as long as its checkpoint.
        partition_by: Partition columns of a new table: strings, integers, dates or booleans.
        storage_options: Options of the object store; by default those of the environment.

    Returns:
        Whether the batch was appended; False if the table has it already.

    Raises:
        BadInput: The batch does not fit the table.
        ConfigError: The table cannot be read or written.
        Conflict: Other processes keep writing to the table.
    """
    target = Target(table, dict(storage_options or {}))
    name = query or _query_of(batch_df)
    delta = _opened(target)
    if delta is None:
        delta = _created(target, batch_df, partition_by)
    if _has(delta, name, batch_id):
        return False
    schema = _fitting(delta, batch_df)
    write = partial(_write, target, schema, delta.metadata().partition_columns)
    files = batch_df.select(*schema.names).mapInArrow(write, FILES).collect()
    for _ in range(ROUNDS_MAX):
        try:
            commit(delta, files, Transaction(name, batch_id))
        except CommitFailedError:
            delta = _opened(target) or delta
            if _has(delta, name, batch_id):
                return False
        except (DeltaError, OSError) as error:
            raise _unusable(target, error) from None
        else:
            return True
    raise Conflict(f"Other processes keep writing to {table}.", hint="Run the query again.")


def commit(delta: DeltaTable, files: Sequence[Any], mark: Transaction) -> None:
    """Add files to a table, and the number of their batch, in one transaction."""
    now_ms = time_ns() // 1_000_000
    delta.create_write_transaction(
        [
            AddAction(file.path, file.size, json.loads(file.parts), now_ms, data_change=True,
                      stats=file.stats)
            for file in files
        ],
        "append",
        delta.schema(),
        partition_by=delta.metadata().partition_columns or None,
        commit_properties=CommitProperties(app_transactions=[mark]),
    )  # fmt: skip


def _has(delta: DeltaTable, name: str, batch_id: int) -> bool:
    last = delta.transaction_version(name)
    return last is not None and last >= batch_id


def _query_of(batch_df: DataFrame) -> str:
    try:
        query = batch_df.sparkSession.sparkContext.getLocalProperty(_QUERY)
    except Exception:  # noqa: BLE001  (Spark Connect has no context)
        query = None
    if not query:
        raise BadInput(
            "Spark does not report the query of this batch.",
            hint='Name it: append_once(batch_df, batch_id, table, query="orders").',
        )
    return str(query)


def _opened(target: Target) -> DeltaTable | None:
    """Open a table; return None if it does not exist."""
    try:
        delta = DeltaTable(target.address, storage_options=target.options or None)
    except TableNotFoundError:
        return None
    except (DeltaError, OSError) as error:
        raise _unusable(target, error) from None
    for key, value in delta.metadata().configuration.items():
        if key.startswith(_REFUSED) and value != "none":
            raise BadInput(
                f"The table {target.address} has the property {key}, which this does not follow.",
                hint="Append to a plain table.",
            )
    return delta


def _created(target: Target, batch_df: DataFrame, partition_by: Sequence[str]) -> DeltaTable:
    schema = to_arrow_schema(batch_df.schema, timezone="UTC")
    for name in partition_by:
        place = schema.get_field_index(name)
        if place < 0 or not any(is_kind(schema.field(place).type) for is_kind in _PARTS):
            raise BadInput(
                f"The batch has no column {name!r} that can be a partition.",
                hint="Use strings, integers, dates or booleans.",
            )
    schema = pa.schema([field.with_nullable(nullable=True) for field in schema])
    try:
        DeltaTable.create(
            target.address,
            Schema.from_arrow(schema),
            mode="ignore",
            partition_by=list(partition_by) or None,
            storage_options=target.options or None,
        )
        return DeltaTable(target.address, storage_options=target.options or None)
    except (DeltaError, OSError) as error:
        raise _unusable(target, error) from None


def _fitting(delta: DeltaTable, batch_df: DataFrame) -> pa.Schema:
    """Return the table's columns, of which the batch must have each that cannot be null."""
    given = to_arrow_schema(batch_df.schema, timezone="UTC")
    wanted = pa.schema(delta.schema().to_arrow())
    for field in given:
        place = wanted.get_field_index(field.name)
        if place < 0:
            raise BadInput(
                f"The table has no column {field.name!r}.",
                hint=f"Its columns are {', '.join(wanted.names)}.",
            )
        if (
            Schema.from_arrow(pa.schema([field])).fields[0].type
            != delta.schema().fields[place].type
        ):
            raise BadInput(
                f"The column {field.name} of the batch is {field.type}; that of the table is"
                f" {wanted.field(place).type}."
            )
    for field in wanted:
        if field.name not in given.names and not field.nullable:
            raise BadInput(f"The batch has no column {field.name!r}.")
    return pa.schema([field for field in wanted if field.name in given.names])


def _write(
    target: Target, schema: pa.Schema, parts: Sequence[str], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Write the rows of a task to files; yield what the commit has to know of them."""
    files = fs.PyFileSystem(DeltaStorageHandler(target.address, target.options or None))
    pending: list[pa.RecordBatch] = []
    for batch in batches:
        if batch.num_rows:
            pending.append(batch)
        if sum(batch.num_rows for batch in pending) >= ROWS_MAX:
            yield from _files(files, pa.Table.from_batches(pending).cast(schema), parts)
            pending = []
    if pending:
        yield from _files(files, pa.Table.from_batches(pending).cast(schema), parts)


def _files(files: fs.FileSystem, rows: pa.Table, parts: Sequence[str]) -> Iterator[pa.RecordBatch]:
    inside = [name for name in rows.schema.names if name not in parts]
    keys = rows.select(parts).group_by(list(parts)).aggregate([]).to_pylist() if parts else [{}]
    for key in keys:
        chosen = rows
        for name, value in key.items():
            column = rows.column(name) if chosen is rows else chosen.column(name)
            same = column.is_null() if value is None else compute.equal(column, value)
            chosen = chosen.filter(same)
        values = {name: None if value is None else _part(value) for name, value in key.items()}
        folders = [
            f"{name}={quote(value or '__HIVE_DEFAULT_PARTITION__')}/"
            for name, value in values.items()
        ]
        path = f"{''.join(folders)}part-{token_hex(16)}.parquet"
        with files.open_output_stream(path) as out:
            parquet.write_table(chosen.select(inside), out, compression="zstd")
        size = files.get_file_info(path).size
        entry = {"path": quote(path, safe="/=%"), "size": size, "parts": json.dumps(values)}
        stats = json.dumps(_stats(chosen.select(inside)))
        yield pa.RecordBatch.from_pylist([entry | {"stats": stats}])


def _part(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _stats(rows: pa.Table) -> dict[str, Any]:
    """Return statistics of a file in the format of Delta's log."""
    lows: dict[str, Any] = {}
    highs: dict[str, Any] = {}
    for name in rows.schema.names:
        kind = rows.schema.field(name).type
        is_short = pa.types.is_string(kind) and (
            (compute.max(compute.utf8_length(rows.column(name))).as_py() or 0) <= _TEXT_MAX
        )
        if pa.types.is_integer(kind) or pa.types.is_date(kind) or is_short or _is_instant(kind):
            ends = compute.min_max(rows.column(name)).as_py()
            if ends["min"] is not None:
                lows[name], highs[name] = map(_shown, ends.values())
    nulls = {name: rows.column(name).null_count for name in rows.schema.names}
    return {"numRecords": rows.num_rows, "minValues": lows, "maxValues": highs, "nullCount": nulls}


def _is_instant(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind) and kind.tz is not None)


def _shown(value: object) -> object:
    if isinstance(value, datetime):
        return value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return value.isoformat() if isinstance(value, date) else value


def _unusable(target: Target, error: Exception) -> ConfigError:
    """Return an error of one sentence, without the values of options."""
    text = " ".join(str(error).split())
    for value in target.options.values():
        text = text.replace(value, "***") if len(value) > 3 else text  # noqa: PLR2004
    return ConfigError(
        f"The table {target.address} cannot be used: {text[:300]}",
        hint="Check the address, the rights, and storage_options.",
    )
