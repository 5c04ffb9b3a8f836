"""`python -m benchmarks.stores_on_spark`: each table of each store, against Parquet of its rows.

Usage: python -m benchmarks.stores_on_spark [--postgres URL] [--rows 200000] [--rounds 3]
         [--only NAME,...] [--folder FOLDER]

Ratios are those of two medians of the same run; what is compared takes turns. A write is compared
with raw inserts, or one COPY, of the same rows into the same tables. With a folder that exists the
stores of the run before are read again; without one they are deleted.
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
from itertools import count
from pathlib import Path
from typing import Any, Final

import psycopg

from benchmarks import on_spark_tables, raw, real_history
from benchmarks.local_spark import orders, two_cores
from benchmarks.on_spark import processor_s, the_same
from benchmarks.on_spark_tables import drain
from dueline import Dueline
from dueline.api.connect import open_store
from dueline.core.store import Migratable
from dueline.spark import enqueue, read

GOALS: Final = {
    "sqlite jobs": 0.55, "sqlite results": 0.6, "sqlite attempts": 0.66, "sqlite events": 0.45,
    "postgres jobs": 0.6, "postgres results": 0.6, "postgres attempts": 0.7, "postgres events": 0.45,
    "sqlite direct": 0.7, "sqlite staged": 0.7, "postgres direct": 0.5, "postgres staged": 0.5,
}  # fmt: skip
"""The least ratios."""

COLUMNS: Final = "lane, pos_us, id, hop, due_us, enqueued_us, task, codec, body, opts, at_us"
KINDS: Final = ("int8", "int8", "bytea", "int8", "int8", "int8", "text", "int8", "bytea", "bytea",
                "int8")  # fmt: skip


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
    """Return how the URL of a store begins and ends, by kind; databases of a server are new."""
    stores = {"sqlite": f"sqlite:///{folder}/%s.db?synchronous=NORMAL"}
    name = "bench_on_spark"
    if not server:
        yield stores
        return
    with psycopg.connect(server, autocommit=True) as connection:
        known = connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [name])
        if not (is_there := known.fetchone()):
            connection.execute(f"CREATE DATABASE {name}".encode())
        try:
            assert keeps or not is_there, f"the database {name} exists"
            yield stores | {"postgres": f"{server.rpartition('/')[0]}/{name}?schema=%s"}
        finally:
            if not keeps:
                connection.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


def measure(
    folder: Path, asked: argparse.Namespace, stores: Mapping[str, str]
) -> Mapping[str, Any]:
    """Measure the tables and writes of each store."""
    spark = two_cores("stores")
    only = tuple(asked.only.split(",")) if asked.only else ("",)
    acts: dict[str, Timed] = {}
    for kind, store in stores.items():
        acts |= readings(spark, folder, asked.rows, kind, store, only)
        acts |= writings(spark, folder, asked.rows, kind, store, only)
    takes: dict[str, list[float]] = defaultdict(list)
    uses: dict[str, list[float]] = defaultdict(list)
    loads: list[float] = []
    calls = count()
    for number in range(asked.rounds + 1):
        loads.append(os.getloadavg()[0])
        for name, (prepare, act) in acts.items():
            for is_timed in (False, number > 0):  # Spark ends processes without work for a minute
                url = prepare(next(calls))
                before_s, used_s = time.perf_counter(), processor_s()
                act(url)
                if is_timed:
                    takes[name].append(time.perf_counter() - before_s)
                    uses[name].append(processor_s() - used_s)
    spark.stop()
    medians = {name: statistics.median(each) for name, each in takes.items()}
    return {
        "rows": asked.rows, "rounds": asked.rounds, "cores": os.cpu_count(),
        "loads": [round(load, 1) for load in loads],
        "seconds": {name: round(s, 3) for name, s in medians.items()},
        "processor_seconds": {name: round(statistics.median(s), 3) for name, s in uses.items()},
        "ratios": {
            name: {"ratio": round(medians[f"{name}: anchor"] / medians[name], 2), "goal": goal}
            for name, goal in GOALS.items() if name in medians
        },
    }  # fmt: skip


def readings(
    spark: Any,
    folder: Path,
    rows: int,
    kind: str,
    store: str,
    only: tuple[str, ...],
) -> dict[str, Timed]:
    """Return the reads of the tables of a kind of store, and those of Parquet."""
    acts: dict[str, Timed] = {}
    for table, name in (("jobs", "waiting"), ("results", "real"), ("attempts", "real"),
                        ("events", "real")):  # fmt: skip
        whole = f"{kind} {table}"
        if not whole.startswith(only):
            continue
        url, mark = store % name, folder / f"{kind}-{name}"
        if not mark.exists():
            make(url)
            fill = on_spark_tables.enqueue if name == "waiting" else real_history.fill
            fill(url, rows)
            mark.touch()
        place = folder / f"{kind}-{table}.parquet"
        if not place.exists():
            read(spark, url, table).write.parquet(str(place))
        acts[f"{whole}: anchor"] = (
            lambda _, place=place: str(place), lambda at: drain(spark.read.parquet(at))
        )  # fmt: skip
        acts[whole] = (
            lambda _, url=url: url, lambda at, table=table: drain(read(spark, at, table))
        )  # fmt: skip
    return acts


def make(url: str) -> None:
    """Create the tables of a store."""
    store = open_store(url)
    if isinstance(store, Migratable):
        store.migrate()
    store.close()


def writings(
    spark: Any,
    folder: Path,
    rows: int,
    kind: str,
    store: str,
    only: tuple[str, ...],
) -> dict[str, Timed]:
    """Return the writes to a kind of store; each goes to a new store."""
    modes = [mode for mode in ("direct", "staged") if f"{kind} {mode}".startswith(only)]
    if not modes:
        return {}
    frame = orders(spark, rows, parts=2)
    same = the_same(frame.toArrow())

    def new(number: int) -> str:
        url = store % f"new{number}"
        make(url)
        app = Dueline(url)
        app.queues.engine.catalog.configure("mail", shards=1)
        app.close()
        return url

    def put(url: str, mode: str) -> None:
        counts = enqueue(frame, url, queue="mail", task="shop.charge", writeMode=mode)
        assert counts[:2] == (rows, rows), counts

    def insert(place: str) -> None:
        database = raw.make_raw(Path(place), "NORMAL")
        raw.insert_at_once(database, same)
        database.close()

    acts: dict[str, Timed] = {}
    for mode in modes:
        name = f"{kind} {mode}"
        acts[f"{name}: anchor"] = (new, lambda url: copy(url, same))
        if kind == "sqlite":
            acts[f"{name}: anchor"] = (lambda number: str(folder / f"raw-{number}.db"), insert)
        acts[name] = (new, lambda url, mode=mode: put(url, mode))
    return acts


def copy(url: str, rows: list[raw.Row]) -> None:
    """Copy rows into the table of jobs of a new store, in one transaction."""
    base, _, schema = url.partition("?schema=")
    with psycopg.connect(base) as connection, connection.cursor() as cursor:
        statement = f"COPY {schema}.jobs ({COLUMNS}) FROM STDIN (FORMAT BINARY)"
        with cursor.copy(statement.encode()) as copying:
            copying.set_types(KINDS)
            for row in rows:
                copying.write_row(row)


if __name__ == "__main__":
    main()
