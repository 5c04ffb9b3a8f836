"""Readers as Spark makes them, driven by hand."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from dueline import Dueline
from dueline.core.store import Row

JOBS = 1500
WAITING = 300


def reader_of(app: Dueline, schema: str = "", **options: str) -> Any:
    """Make the reader that Spark would make."""
    from dueline.spark.reading import schemas
    from pyspark_dueline import DefaultSource

    source = DefaultSource({"store": app.url} | options)
    columns = dict(column.split() for column in schema.split(", ") if column)
    return source.reader(schemas.struct_of(columns) if columns else source.schema())


def rows_of(reader: Any) -> Iterator[Mapping[str, Any]]:
    """Read all that a reader plans."""
    for part in reader.partitions():
        for batch in reader.read(part):
            yield from batch.to_pylist()


def follower_of(app: Dueline, stream: str = "", **options: str) -> Any:
    """Make the reader that Spark would make."""
    from pyspark_dueline import DefaultSource

    given = {"table": "stream", "stream": stream} if stream else {"table": "attempts"}
    source = DefaultSource({"store": app.url, "pollInterval": "0"} | given | options)
    return source.streamReader(source.schema())


def limit_of(reader: Any) -> Any:
    """Ask how much a batch holds, as Spark does."""
    return reader.getDefaultReadLimit()


def walk(reader: Any, start: Any = None) -> Iterator[list[Mapping[str, Any]]]:
    """Read batch after batch until nothing is new, as Spark does."""
    start = start or reader.initialOffset()
    while (end := reader.latestOffset(start, limit_of(reader))) != start:
        yield list(rows_between(reader, start, end))
        start = end


def row(stream: str, number: int, at_us: int, shard: int = 0) -> Row:
    """Make a row that carries its number."""
    return Row(stream, shard, at_us, b"%08d" % number, b'{"n":%d}' % number)


def numbers(rows: Iterator[Mapping[str, Any]] | list[Mapping[str, Any]]) -> list[int]:
    """Return the numbers that rows carry."""
    return [int(row["id"]) for row in rows]


COLUMNS = (
    "queue string, shard int, at timestamp, id string, job_id string, attempt int, task string,"
    " tenant string, priority int, enqueued timestamp, due timestamp, claimed timestamp,"
    " started timestamp, ended timestamp, outcome string, error string, worker string,"
    " codec int, payload_bytes int, payload binary, digest string"
)


@cache
def _wanted(table: str, columns: str) -> Any:
    """Return the Arrow schema of columns: to make it from Spark's takes longer than to use it."""
    from dueline.spark.reading import schemas

    kinds = dict(column.split() for column in columns.split(", "))
    return schemas.wanted(table, schemas.struct_of(kinds))


def table_of(rows: Sequence[Row], columns: str, table: str = "attempts") -> list[dict[str, Any]]:
    """Read rows as Spark is given them."""
    from dueline.spark.reading import schemas

    wanted = _wanted(table, columns)
    lines: list[dict[str, Any]] = schemas.batch_of_rows(rows, wanted, table=table).to_pylist()
    return lines


def rows_between(reader: Any, start: Any, end: Any) -> Iterator[Mapping[str, Any]]:
    """Yield the rows of a batch."""
    for part in reader.partitions(start, end):
        for batch in reader.read(part):
            yield from batch.to_pylist()
