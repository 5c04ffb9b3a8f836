"""`python -m benchmarks.stores_on_spark`: each table of each store, against Parquet of its rows.

Usage: python -m benchmarks.stores_on_spark [--postgres URL] [--rows 200000] [--rounds 3]
         [--only NAME,...] [--folder FOLDER]

Ratios are those of two medians of the same run; what is compared takes turns. "ready" are the same
rows from a Python source that only hands over Arrow files: the limit of such a source. A write is
compared with raw inserts, or one COPY, of the same rows into the same tables. The stores stay in a
folder that is given, and are read again by the next run; otherwise they are deleted.
"""

import argparse
import json
import os
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, Final

import psycopg
import pyarrow as pa
from pyarrow import parquet
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from benchmarks import on_spark_tables, raw, real_history
from benchmarks.local_spark import orders, two_cores
from benchmarks.on_spark import processor_s, the_same
from benchmarks.on_spark_tables import drain
from dueline import Dueline
from dueline.api.connect import open_store
from dueline.core.store import Migratable
from dueline.spark import enqueue, read
from dueline.spark.reading import schemas
from dueline.spark.reading.arrow_batches import PAGE

TASKS: Final = 2
TABLES: Final = {"jobs": "waiting", "results": "real", "attempts": "real", "events": "real"}
"""The store of each table."""

GOALS: Final = {
    "sqlite jobs": 0.55, "sqlite results": 0.6, "sqlite attempts": 0.66, "sqlite events": 0.45,
    "postgres jobs": 0.6, "postgres results": 0.6, "postgres attempts": 0.7,
    "postgres events": 0.45, "sqlite direct": 0.7, "sqlite staged": 0.7, "postgres direct": 0.5,
    "postgres staged": 0.5,
}  # fmt: skip
"""The least ratios."""

DATABASE: Final = "bench_on_spark"
COLUMNS: Final = (
    "lane, pos_us, id, hop, due_us, enqueued_us, task, codec, body, opts, at_us"
)  # fmt: skip
KINDS: Final = ("int8", "int8", "bytea", *["int8"] * 3, "text", "int8", "bytea", "bytea", "int8")

Timed = tuple[Callable[[int], str], Callable[[str], object]]
"""What makes a store that has a number, and what is timed, with its URL."""


def main() -> None:
    """Measure, then print one JSON object."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.stores_on_spark", description=__doc__
    )
    parser.add_argument("--postgres", default="", help="URL of a server")
    parser.add_argument("--rows", type=int, default=200_000, help="jobs of each store")
    parser.add_argument("--rounds", type=int, default=3, help="of everything, interleaved")
    parser.add_argument("--only", default="", help="names of what is measured, or their beginnings")
    parser.add_argument("--folder", default="", help="keeps the stores here")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(asked.folder or folder)
        place.mkdir(exist_ok=True)
        with databases(asked.postgres, place, keeps=bool(asked.folder)) as stores:
            print(json.dumps(measure(place, asked, stores), indent=2))


@contextmanager
def databases(server: str, folder: Path, *, keeps: bool) -> Iterator[Mapping[str, str]]:
    """Return the URLs of stores, with %s for their names, by kind."""
    stores = {"sqlite": f"sqlite:///{folder}/%s.db?synchronous=NORMAL"}
    if not server:
        yield stores
        return
    with psycopg.connect(server, autocommit=True) as connection:
        known = connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [DATABASE])
        if not (is_there := known.fetchone()):
            connection.execute(f"CREATE DATABASE {DATABASE}".encode())
        assert keeps or not is_there, f"the database {DATABASE} exists"
        try:
            yield stores | {"postgres": f"{server.rpartition('/')[0]}/{DATABASE}?schema=%s"}
        finally:
            if not keeps:
                connection.execute(f"DROP DATABASE {DATABASE} WITH (FORCE)".encode())


def measure(
    folder: Path, asked: argparse.Namespace, stores: Mapping[str, str]
) -> Mapping[str, Any]:
    """Measure the tables and writes of each store."""
    spark = two_cores("stores")
    spark.dataSource.register(ReadySource)
    only = tuple(asked.only.split(",")) if asked.only else ("",)
    few = pa.RecordBatch.from_pydict({"queue": ["mail"]})
    with pa.OSFile(f"{folder}/few.arrow", "wb") as file, pa.ipc.new_file(file, few.schema) as out:
        for _ in range(TASKS):
            out.write_batch(few)
    alive = spark.read.format(ReadySource.name()).schema("queue string").load(f"{folder}/few.arrow")
    acts: dict[str, Timed] = {}
    for kind, url in stores.items():
        measured = Measured(spark, folder, asked.rows, kind, url)
        for table in TABLES:
            acts |= measured.reading(table) if f"{kind} {table}".startswith(only) else {}
        for mode in ("direct", "staged"):
            acts |= measured.writing(mode) if f"{kind} {mode}".startswith(only) else {}
    takes: dict[str, list[float]] = defaultdict(list)
    uses: dict[str, list[float]] = defaultdict(list)
    loads: list[float] = []
    calls = count()
    for number in range(asked.rounds + 1):
        loads.append(round(os.getloadavg()[0], 1))
        for name, (prepare, act) in acts.items():
            url = prepare(next(calls))
            alive.count()  # Spark ends Python processes that had no work for a minute
            before_s, used_s = time.perf_counter(), processor_s()
            act(url)
            if number:  # the first warms up
                takes[name].append(time.perf_counter() - before_s)
                uses[name].append(processor_s() - used_s)
    spark.stop()
    seconds = {name: round(statistics.median(each), 3) for name, each in takes.items()}
    return {
        "rows": asked.rows, "rounds": asked.rounds, "cores": os.cpu_count(), "loads": loads,
        "seconds": seconds,
        "processor_seconds": {name: round(statistics.median(s), 3) for name, s in uses.items()},
        "ratios": {
            name: {
                other: round(seconds[f"{name}: {other}"] / seconds[name], 2)
                for other in ("parquet", "ready", "raw") if f"{name}: {other}" in seconds
            } | {"goal": goal}
            for name, goal in GOALS.items() if name in seconds
        },
    }  # fmt: skip


@dataclass(frozen=True)
class Measured:
    """One kind of store.

    Attributes:
        folder: Where files are.
        rows: Number of jobs.
        kind: Its name.
        store: The URL of its stores, with %s for their names.
    """

    spark: Any
    folder: Path
    rows: int
    kind: str
    store: str

    def reading(self, table: str) -> dict[str, Timed]:
        """Return the read of a table, and those of the same rows elsewhere."""
        whole = f"{self.kind} {table}"
        url, mark = self.store % TABLES[table], self.folder / f"{self.kind}-{TABLES[table]}"
        if not mark.exists():
            make(url)
            fill = on_spark_tables.enqueue if table == "jobs" else real_history.fill
            fill(url, self.rows)
            mark.touch()
        place = self.folder / f"{self.kind}-{table}"
        read(self.spark, url, table).write.mode("overwrite").parquet(f"{place}.parquet")
        types = schemas.wanted(table, schemas.struct_of(schemas.COLUMNS[table]))
        rows = parquet.read_table(f"{place}.parquet").cast(types).combine_chunks()
        with pa.OSFile(f"{place}.arrow", "wb") as file, pa.ipc.new_file(file, rows.schema) as out:
            for batch in rows.to_batches(max_chunksize=PAGE):
                out.write_batch(batch)
        ready = self.spark.read.format(ReadySource.name()).option("table", table)
        return {
            f"{whole}: parquet": (
                lambda _: f"{place}.parquet", lambda at: drain(self.spark.read.parquet(at))
            ),
            f"{whole}: ready": (lambda _: f"{place}.arrow", lambda at: drain(ready.load(at))),
            whole: (lambda _: url, lambda at: drain(read(self.spark, at, table))),
        }  # fmt: skip

    def writing(self, mode: str) -> dict[str, Timed]:
        """Return a write to a new store, and the raw one."""
        frame = orders(self.spark, self.rows, parts=TASKS)
        same = the_same(frame.toArrow())
        run = f"{time.time_ns():x}"

        def new(number: int) -> str:
            url = self.store % f"new_{run}_{number}"
            make(url)
            app = Dueline(url)
            app.queues.engine.catalog.configure("mail", shards=1)
            app.close()
            return url

        def put(url: str) -> None:
            counts = enqueue(frame, url, queue="mail", task="shop.charge", writeMode=mode)
            assert counts[:2] == (self.rows, self.rows), counts

        raws: Timed = (new, partial(copy, rows=same))
        if self.kind == "sqlite":
            raws = (
                lambda number: str(self.folder / f"raw_{run}_{number}.db"),
                partial(insert, rows=same),
            )
        return {f"{self.kind} {mode}: raw": raws, f"{self.kind} {mode}": (new, put)}


def make(url: str) -> None:
    """Create the tables of a store."""
    store = open_store(url)
    if isinstance(store, Migratable):
        store.migrate()
    store.close()


def insert(place: str, *, rows: list[raw.Row]) -> None:
    """Insert rows into the table of jobs of a new file, in one transaction."""
    database = raw.make_raw(Path(place), "NORMAL")
    raw.insert_at_once(database, rows)
    database.close()


def copy(url: str, *, rows: list[raw.Row]) -> None:
    """Copy rows into the table of jobs of a new store, in one transaction."""
    base, _, schema = url.partition("?schema=")
    with psycopg.connect(base) as connection, connection.cursor() as cursor:
        statement = f"COPY {schema}.jobs ({COLUMNS}) FROM STDIN (FORMAT BINARY)"
        with cursor.copy(statement.encode()) as copying:
            copying.set_types(KINDS)
            for row in rows:
                copying.write_row(row)


class ReadySource(DataSource):  # type: ignore[misc]  # Spark may be absent
    """A data source that hands over the batches of an Arrow file."""

    @classmethod
    def name(cls) -> str:
        """Name the format."""
        return "ready_arrow"

    def schema(self) -> StructType:
        """Return the columns of the table."""
        return schemas.struct_of(schemas.COLUMNS[self.options["table"]])

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002  (Spark's call)
        """Read the file once."""
        return _ReadyReader(self.options["path"])


class _ReadyReader(DataSourceReader):  # type: ignore[misc]
    def __init__(self, path: str) -> None:
        self._path = path

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(number) for number in range(TASKS)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        with pa.memory_map(self._path) as file:
            batches = pa.ipc.open_file(file)
            for number in range(partition.value, batches.num_record_batches, TASKS):
                yield batches.get_batch(number)


if __name__ == "__main__":
    main()
