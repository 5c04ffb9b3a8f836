"""Runs one SQL text, in Spark's dialect, on DuckDB or on Spark.

A table or a rule is written once. Values are given as parameters (`:name`), never as parts of the
text; larger ones are given as views. Both engines return the same rows for the functions that the
tests of this module name. To stay with them:

- count and sum without decimals, and no approximate function;
- `collect_set` of nothing is null in DuckDB: `coalesce(…, array())`, or `count(DISTINCT …)`;
- no order by in windows that leaves ties, and none in the text that the result depends on;
- instants are microseconds in UTC, compared as `unix_micros(at)` if whole numbers are meant.
"""

import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from importlib import resources
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeVar

import pyarrow as pa
from pyarrow import fs

if TYPE_CHECKING:  # a run that finds nothing new imports none of them
    import duckdb
    from pyarrow.dataset import Dataset
    from pyspark.sql import DataFrame, SparkSession

    from dueline.spark.pipeline.query_texts import Text

View = Any
"""An Arrow table, record batch reader or dataset, `Files`, or `Derived`;
on Spark a data frame, too."""

Value = str | int | float | bool | None | Sequence[str] | Sequence[int]
Values = Mapping[str, Value]

MACROS: Final = (
    "CREATE MACRO timestamp_micros(us) AS make_timestamptz(CAST(us AS BIGINT))",
    "CREATE MACRO timestamp_seconds(s) AS make_timestamptz(CAST(s AS BIGINT) * 1000000)",
)
"""Spark's functions that DuckDB lacks."""

OFFLINE: Final = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "python_enable_replacements": "false",  # a mistyped view is no local variable
    "preserve_insertion_order": "false",
}
BATCH_ROWS: Final = 65_536
_INTERRUPT_AGAIN_S: Final = 0.1

T = TypeVar("T")


class FileSystem(Protocol):
    """Where files are; a value that tasks of Spark can get."""

    def open(self) -> fs.FileSystem:
        """Return the file system, in any process."""
        ...


class Files(NamedTuple):
    """Parquet files of a table.

    Attributes:
        paths: Their paths; there may be none.
        schema: The columns of the table. Those that a file lacks are null in it.
        base: The table's folder; folders below it are named `column=value`.
        system: Where the paths are, if not in local folders.
    """

    paths: Sequence[str]
    schema: pa.Schema
    base: str = ""
    system: FileSystem | None = None

    def dataset(self) -> "Dataset":
        """Return the files as a dataset."""
        from pyarrow import dataset  # noqa: PLC0415  (it imports pandas)

        parts = dataset.partitioning(flavor="hive", schema=self.schema)
        return dataset.dataset(
            list(self.paths), self.schema, format="parquet", partitioning=parts,
            partition_base_dir=self.base or None,
            filesystem=None if self.system is None else self.system.open(),
        )  # fmt: skip


class Derived(NamedTuple):
    """A view that another text computes, with the same views and values.

    It is put in front of the text that names it, so no two of them may name a part alike.
    """

    sql: str


class Result(Protocol):
    """The rows of a query; they can be read once. Spark's have a data frame, `frame`."""

    def batches(self, schema: pa.Schema | None = None) -> Iterable[pa.RecordBatch]:
        """Return the rows in batches."""
        ...

    def table(self, schema: pa.Schema | None = None) -> pa.Table:
        """Return the rows, in the types of a schema if one is given."""
        ...


class Queries(Protocol):
    """An engine for SQL texts."""

    def run(self, sql: str, views: Mapping[str, View], values: Values | None = None) -> Result:
        """Run a query over views.

        Args:
            sql: One statement in Spark's dialect.
            views: The tables that it names, and perhaps others.
            values: Values of its parameters.
        """
        ...


def lines_of(result: Result) -> list[dict[str, Any]]:
    """Return the rows as mappings, with instants in microseconds."""
    return lines_in(result.table())


def lines_in(table: pa.Table) -> list[dict[str, Any]]:
    """Return the rows of a table as mappings, with instants in microseconds."""
    for place, field in enumerate(table.schema):
        if pa.types.is_timestamp(field.type):
            instants = table.column(place).cast(pa.timestamp("us", "UTC")).cast(pa.int64())
            table = table.set_column(place, field.name, instants)
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows


def text_of(name: str) -> str:
    """Return the SQL text of a name, from the package's folder `sql`."""
    return (
        resources.files("dueline.spark.pipeline").joinpath("sql", f"{name}.sql").read_text("utf-8")
    )


def _interruptibly(call: Callable[[], T], interrupt: Callable[[], object]) -> T:
    """Run a call of DuckDB; a signal whose handler raises interrupts it.

    DuckDB itself does not check for signals while a reader fetches rows. Elsewhere it makes another
    error of them, or aborts. So the main thread, which alone handles signals, waits for another.
    """
    if threading.current_thread() is not threading.main_thread():
        return call()
    answers: list[T] = []
    errors: list[BaseException] = []
    # Not `Thread.is_alive`: after an interrupted `start` or `join` it may be wrong.
    has_begun, is_refused, is_over = threading.Event(), threading.Event(), threading.Event()

    def run() -> None:
        has_begun.set()
        try:
            if not is_refused.is_set():
                answers.append(call())
        except BaseException as error:  # noqa: BLE001  (raised again below)
            errors.append(error)
        finally:
            is_over.set()

    try:
        threading.Thread(target=run, name="dueline-duckdb", daemon=True).start()
        is_over.wait()
    except BaseException:
        is_refused.set()
        while has_begun.is_set() and not is_over.is_set():
            interrupt()  # again, since a query that begins forgets an earlier one
            is_over.wait(_INTERRUPT_AGAIN_S)
        raise
    if errors:
        raise errors[0]
    return answers[0]


class DuckResult:
    """The rows of a query on DuckDB.

    Args:
        cursor: The cursor that runs it.
        relation: The query.
    """

    def __init__(
        self, cursor: "duckdb.DuckDBPyConnection", relation: "duckdb.DuckDBPyRelation"
    ) -> None:
        self._cursor = cursor
        self._relation = relation

    def batches(self, schema: pa.Schema | None = None) -> pa.RecordBatchReader:
        """Return the rows in batches, of which only one is in memory."""
        reader = _interruptibly(
            lambda: self._relation.to_arrow_reader(BATCH_ROWS), self._cursor.interrupt
        )
        schema = schema or pa.schema([_spark_field(field) for field in reader.schema])
        return pa.RecordBatchReader.from_batches(schema, self._cast_batches(reader, schema))

    def _cast_batches(
        self, reader: pa.RecordBatchReader, schema: pa.Schema
    ) -> Iterator[pa.RecordBatch]:
        def next_batch() -> pa.RecordBatch | None:
            return next(reader, None)

        try:
            while (batch := _interruptibly(next_batch, self._cursor.interrupt)) is not None:
                yield _cast(batch, schema)
        finally:
            reader.close()  # else threads of DuckDB go on with the query

    def table(self, schema: pa.Schema | None = None) -> pa.Table:
        """Return the rows."""
        return self.batches(schema).read_all()


class Duck:
    """Runs queries on DuckDB, in this process.

    Args:
        settings: Settings of DuckDB, for instance `memory_limit` and `temp_directory`.
    """

    def __init__(self, settings: Mapping[str, str] | None = None) -> None:
        self._settings = OFFLINE | dict(settings or {})
        self._connection: duckdb.DuckDBPyConnection | None = None

    def run(self, sql: str, views: Mapping[str, View], values: Values | None = None) -> DuckResult:
        """Run a query; see `Queries.run`."""
        if self._connection is None:  # a new one costs ten times as much as a small query
            self._connection = _interruptibly(self._connect, lambda: None)
        cursor = self._connection.cursor()
        text = _whole(sql, views)
        known = {name: views[name] for name in text.tables & views.keys()}

        def query() -> "duckdb.DuckDBPyRelation":
            cursor.execute("SET TimeZone = 'UTC'")
            for name, view in known.items():
                cursor.register(name, view.dataset() if isinstance(view, Files) else view)
            return cursor.sql(text.for_duck, params=text.used(values))

        return DuckResult(cursor, _interruptibly(query, cursor.interrupt))

    def _connect(self) -> "duckdb.DuckDBPyConnection":
        import duckdb  # noqa: PLC0415  (see above)

        connection = duckdb.connect(":memory:", config=self._settings)
        for statement in MACROS:
            connection.execute(statement)
        return connection


class SparkResult:
    """The rows of a query on Spark."""

    def __init__(self, frame: "DataFrame") -> None:
        self.frame = frame

    def batches(self, schema: pa.Schema | None = None) -> Iterable[pa.RecordBatch]:
        """Return the rows in batches."""
        return self.table(schema).to_batches()  # type: ignore[no-any-return]

    def table(self, schema: pa.Schema | None = None) -> pa.Table:
        """Return the rows, which have to fit into the driver."""
        table = self.frame.toArrow()
        return table if schema is None else _cast(table, schema)


class Spark:
    """Runs queries on Spark."""

    def __init__(self, session: "SparkSession") -> None:
        self._session = session

    def run(self, sql: str, views: Mapping[str, View], values: Values | None = None) -> SparkResult:
        """Run a query; see `Queries.run`."""
        from dueline.spark.pipeline.query_texts import PREFIX, prefixed  # noqa: PLC0415  (see above)

        text = _whole(sql, views)
        frames = {PREFIX + name: self.frame(views[name]) for name in text.tables & views.keys()}
        words = text.tree.transform(prefixed, frames).sql("spark", comments=False)
        words = words.replace("{", "{{").replace("}", "}}")
        words = re.sub(rf"\b{PREFIX}\w+", r"{\g<0>}", words)
        return SparkResult(self._session.sql(words, args=text.used(values), **frames))

    def frame(self, view: View) -> "DataFrame":
        """Return a view as a data frame."""
        if isinstance(view, Files):
            return self._files(view)
        from pyarrow.dataset import Dataset  # noqa: PLC0415  (it imports pandas)

        if isinstance(view, Dataset):
            view = view.to_table()
        elif isinstance(view, pa.RecordBatchReader):
            view = view.read_all()
        return self._session.createDataFrame(view) if isinstance(view, pa.Table) else view

    def _files(self, files: Files) -> "DataFrame":
        from pyspark.sql import functions as F  # noqa: N812, PLC0415  (DuckDB needs no Spark)
        from pyspark.sql.pandas.types import from_arrow_schema  # noqa: PLC0415

        schema = from_arrow_schema(files.schema)
        if not files.paths:
            return self._session.createDataFrame([], schema)
        if files.system is not None:  # Spark's own readers need jars for object stores
            tasks = self._session.range(0, len(files.paths), numPartitions=len(files.paths))
            return tasks.mapInArrow(partial(_read, files), schema)
        reader = self._session.read.schema(schema)
        if files.base:
            reader = reader.option("basePath", files.base)
        frame = reader.parquet(*files.paths)
        return frame.select(*[F.col(field.name).cast(field.dataType) for field in schema])


def _read(files: Files, numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Read the files of these numbers."""
    for batch in numbers:
        paths = [files.paths[number] for number in batch.column("id").to_pylist()]
        yield from files._replace(paths=paths).dataset().to_batches()


def _whole(sql: str, views: Mapping[str, View]) -> "Text":
    """Return a text that begins with the derived views that it names."""
    from dueline.spark.pipeline.query_texts import whole  # noqa: PLC0415  (see above)

    derived = {name: view.sql for name, view in views.items() if isinstance(view, Derived)}
    return whole(sql, tuple(derived.items()))


def _spark_field(field: pa.Field) -> pa.Field:
    """Return a field as Spark has it: sums of whole numbers are decimals in DuckDB."""
    return pa.field(field.name, pa.int64()) if pa.types.is_decimal(field.type) else field


def _cast(rows: Any, schema: pa.Schema) -> Any:  # noqa: ANN401  (a table or a batch)
    columns = [rows.column(field.name).cast(field.type) for field in schema]
    return type(rows).from_arrays(columns, schema=schema)
