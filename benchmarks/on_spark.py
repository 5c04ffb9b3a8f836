"""`python -m benchmarks.on_spark`: Spark's ratios as JSON.

Usage: python -m benchmarks.on_spark [--rows 200000] [--rounds 3]

Each ratio is that of two medians of the same run; what is compared takes turns.
"""

import argparse
import json
import os
import platform
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import apsw

from dueline import Dueline
from dueline.spark import enqueue, read, session
from dueline.store import Row

Act = Callable[[int], object]
"""Does something once, in a round."""

SHARDS = 8
CHUNK = 10_000
RARE = 1000
"""One row in so many is what a narrow condition is after."""

RATIOS = {
    "batch_read_against_parquet": ("parquet", "attempts", 0.6),
    "batch_read_against_json_lines": ("json", "attempts", 1.3),
    "projection_to_3_columns": ("attempts", "projection", 1.6),
    "one_shard_by_pushdown_against_count": ("count", "pushdown", 5.0),
    "bulk_enqueue_against_raw_inserts": ("raw", "enqueue", 0.7),
    "staged_enqueue_against_raw_inserts": ("raw", "staged", 0.7),
}
"""By name: what takes longer when we are good, what is ours, and the goal."""


def main() -> None:
    """Measure, then print one JSON object."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.on_spark", description=__doc__)
    parser.add_argument("--rows", type=int, default=200_000, help="of the history, and of a write")
    parser.add_argument("--rounds", type=int, default=3, help="of everything, interleaved")
    asked = parser.parse_args()
    root = Path(__file__).parents[1]
    paths = (str(root / "src"), os.environ.get("PYTHONPATH", ""))
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))  # workers read it
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(measure(Path(folder), asked.rows, asked.rounds), indent=2))


def measure(folder: Path, rows: int, rounds: int) -> Mapping[str, Any]:
    """Measure everything on a store in a folder."""
    url = f"sqlite:///{folder / 'history.db'}?synchronous=NORMAL"
    fill(url, rows)
    spark = session("bench", master="local[2]", conf={"spark.log.level": "ERROR"})
    takes: dict[str, list[float]] = defaultdict(list)
    acts = readings(spark, url, folder) | writings(spark, folder, rows)
    for number in range(rounds + 1):
        for name, act in acts.items():
            before = time.perf_counter()
            act(number)
            if number:  # the first warms up
                takes[name].append(time.perf_counter() - before)
    spark.stop()
    seconds = {name: statistics.median(some) for name, some in takes.items()}
    return {
        "rows": rows, "rounds": rounds, "cores": os.cpu_count(), "load": os.getloadavg()[0],
        "machine": platform.machine(), "sqlite": apsw.sqlite_lib_version(),
        "seconds": {name: round(some, 3) for name, some in seconds.items()},
        "ratios": {
            name: {"ratio": round(seconds[above] / seconds[below], 2), "goal": goal}
            for name, (above, below, goal) in RATIOS.items()
        },
    }  # fmt: skip


def fill(url: str, rows: int) -> None:
    """Make a history; its rows are as workers write them."""
    app = Dueline(url)
    app.queue("mail", shards=SHARDS)
    now_us = app.store.clock_us() - 3600 * 1_000_000
    for start in range(0, rows, CHUNK):
        numbers = range(start, min(rows, start + CHUNK))
        app.store.append(
            [
                Row("mail!history", shard_of(n), now_us + n, b"%016d" % n, body(n, now_us + n))
                for n in numbers
            ]
        )
    app.close()


def shard_of(number: int) -> int:
    """Let the last shard hold few rows."""
    return SHARDS - 1 if number % RARE == 0 else number % (SHARDS - 1)


def body(number: int, at_us: int) -> bytes:
    """Write an attempt."""
    return json.dumps({
        "job": f"{number:032x}", "task": "shop.charge", "queue": "mail", "tenant": "",
        "priority": 0, "enqueued_us": at_us - 900, "due_us": at_us - 900,
        "claimed_us": at_us - 500, "started_us": at_us - 400, "ended_us": at_us,
        "outcome": "done", "error": "", "worker": "host:1:abcdef", "fence": 1,
    }).encode()  # fmt: skip


def readings(spark: Any, url: str, folder: Path) -> dict[str, Act]:  # noqa: ANN401
    """Name the reads that are measured."""
    whole = read(spark, url, "attempts")
    whole.write.parquet(str(folder / "parquet"))
    whole.write.json(str(folder / "json"))
    narrow = spark.read.format("dueline").schema("job_id string, outcome string, ended timestamp")
    frames = {
        "attempts": whole,
        "parquet": spark.read.parquet(str(folder / "parquet")),
        "json": spark.read.schema(whole.schema).json(str(folder / "json")),
        "projection": narrow.options(store=url, table="attempts").load(),
    }
    acts = {name: drained(frame) for name, frame in frames.items()}
    rare = whole.where(f"shard = {SHARDS - 1}")
    return acts | {"count": lambda _: whole.count(), "pushdown": lambda _: rare.count()}


def drained(frame: Any) -> Act:  # noqa: ANN401
    """Read all of a table into nothing."""
    return lambda _: frame.write.format("noop").mode("overwrite").save()


def writings(spark: Any, folder: Path, rows: int) -> dict[str, Act]:  # noqa: ANN401
    """Name the writes that are measured; each goes to a file of its own."""
    data = spark.range(rows, numPartitions=2)
    frame = data.selectExpr("concat('n', id) AS job_id", "concat('[', id, ']') AS payload")

    def put(number: int, mode: str) -> None:
        url = f"sqlite:///{folder / f'{mode}-{number}.db'}?synchronous=NORMAL"
        app = Dueline(url)
        app.queues.catalog.configure("mail", shards=1)
        app.close()
        counts = enqueue(frame, url, queue="mail", task="shop.charge", writeMode=mode)
        assert counts == (rows, rows), counts

    def raw(number: int) -> None:
        database = apsw.Connection(str(folder / f"raw-{number}.db"))
        database.execute("PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL")
        database.execute("CREATE TABLE jobs (id BLOB PRIMARY KEY, payload BLOB)")
        some = ((b"%016d" % one, b"[%d]" % one) for one in range(rows))
        with database:
            database.executemany("INSERT OR IGNORE INTO jobs VALUES (?, ?)", some)
        database.close()

    return {
        "raw": raw,
        "enqueue": lambda number: put(number, "direct"),
        "staged": lambda number: put(number, "staged"),
    }


if __name__ == "__main__":
    main()
