"""`python -m benchmarks.on_spark`: Spark's ratios as JSON.

Usage: python -m benchmarks.on_spark [--rows 1500000] [--written 500000]
         [--rounds 5] [--singly]

Each ratio is that of two medians of the same run; what is compared takes turns. `seconds` are those
of a clock on the wall; `processor_seconds` are those that the driver, Java and the workers used,
which say something on a machine that others use too.
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
from contextlib import suppress
from pathlib import Path
from typing import Any

import apsw
import pyarrow as pa

from benchmarks import on_spark_tables, raw
from benchmarks.local_spark import orders, queue_at, two_cores
from benchmarks.on_spark_streams import Act, Latency, TupleSource, drains, jobs
from benchmarks.on_spark_tables import drain
from dueline import Dueline
from dueline.core.attempt import Done, Ended
from dueline.core.codec import JSON
from dueline.core.ids import Ids
from dueline.core.job import UNCLAIMED_TOKEN, Job, JobId
from dueline.core.lane import Lane
from dueline.core.store import Row
from dueline.jobs.history import attempt_of, row_of, rows_of_ended
from dueline.spark import enqueue, read
from dueline.spark.pipeline.delta import place_of
from dueline.spark.pipeline.engine import Settings
from dueline.spark.pipeline.pipeline import pipeline
from dueline.spark.writing.rows_to_jobs import Form, in_order, new_jobs

SHARDS = 8
CHUNK = 10_000
WRITTEN_A_JOB = 5
"""Of so many rows that are written one job is run."""

EVENTS_A_JOB = 2
"""A job of the real history has that many events, and a few more."""

RARE = 1000
"""One row in so many is what a narrow condition is after."""

APART_US = 1000
"""How long after an attempt the next one ends."""

BATCH = 500
"""Jobs that one transaction of a worker ends, of one claim."""

CLAIM_US = CHUNK * APART_US
"""What ends within this time was claimed at one instant."""

RATIOS = on_spark_tables.RATIOS | {
    "synthetic_batch_read_against_tuples": ("tuples", "attempts", 5.0),
    "synthetic_batch_read_against_parquet": ("parquet", "attempts", 0.6),
    "synthetic_batch_read_against_json_lines": ("json", "attempts", 1.3),
    "projection_to_3_columns": ("attempts", "projection", 1.6),
    "one_shard_by_pushdown_against_count": ("count", "pushdown", 5.0),
    "bulk_enqueue_against_raw_inserts": ("raw", "enqueue", 0.7),
    "staged_enqueue_against_raw_inserts": ("raw", "staged", 0.75),
    "bulk_enqueue_against_calls_in_a_loop": ("loop", "enqueue", 5.0),
}
"""By name: what takes longer when we are good, what is ours, and the goal, which is the least."""

COSTS = {
    "stream_drain_in_8_batches_against_one": ("drain in 8", "drain", 2.5),
    "stream_into_sink_in_8_batches_against_drain": ("handle in 8", "drain in 8", 3.5),
    "jobs_on_spark_against_a_worker": ("consume", "worker", 3.5),
    "many_jobs_a_call_on_spark_against_a_worker": ("consume many", "worker", 3.5),
    "bronze_against_duckdb": ("bronze", "bronze by duckdb", 2.0),
    "stream_latency_against_json_files": ("latency", "latency of files", 1.3),
}
"""By name: what is ours, what it is held against, and the goal, which is the most."""


def main() -> None:
    """Measure, then print one JSON object."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.on_spark", description=__doc__)
    parser.add_argument("--rows", type=int, default=1_500_000, help="of the history")
    parser.add_argument("--written", type=int, default=500_000, help="rows of a write")
    parser.add_argument("--rounds", type=int, default=5, help="of everything, interleaved")
    parser.add_argument("--singly", action="store_true", help="each attempt in a row of its own")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(measure(Path(folder), asked), indent=2))


def measure(folder: Path, asked: argparse.Namespace) -> Mapping[str, Any]:
    """Measure everything on a store in a folder."""
    rows, rounds = asked.rows, asked.rounds
    url = f"sqlite:///{folder / 'history.db'}?synchronous=NORMAL"
    fill(url, rows, told=each if asked.singly else rows_of_ended)
    spark = two_cores("bench")
    takes: dict[str, list[float]] = defaultdict(list)
    uses: dict[str, list[float]] = defaultdict(list)
    reads = on_spark_tables.readings(spark, folder, rows // EVENTS_A_JOB)
    reads |= readings(spark, url, folder, rows)
    acts = reads | writings(spark, folder, asked.written)
    spark.dataSource.register(TupleSource)
    tuples = spark.read.format(TupleSource.name()).options(store=url, table="attempts")
    acts["tuples"] = lambda _: drain(tuples.load())
    acts |= drains(spark, url, folder, rows) | copies(url, folder)
    acts |= jobs(spark, folder, asked.written // WRITTEN_A_JOB)
    latency = Latency(spark, folder)
    latencies = {"latency": latency.of_stream, "latency of files": latency.of_files}
    warmed = {*reads, "enqueue", "staged"}
    for number in range(rounds + 1):
        for name, act in acts.items():
            if name in warmed:  # Spark ends Python processes that had no work for a minute
                act(-1 - number)
            before, used = time.perf_counter(), processor_s()
            act(number)
            if number:  # the first warms up
                takes[name].append(time.perf_counter() - before)
                uses[name].append(processor_s() - used)
        for name, late in latencies.items():
            takes[name] += late() if number else []
    spark.stop()
    seconds = {name: statistics.median(some) for name, some in takes.items()}
    used_s = {name: statistics.median(some) for name, some in uses.items()}
    return {
        "rows": rows, "written": asked.written, "rounds": rounds, "singly": asked.singly,
        "cores": os.cpu_count(), "load": os.getloadavg()[0],
        "machine": platform.machine(), "sqlite": apsw.sqlite_lib_version(),
        "seconds": {name: round(some, 3) for name, some in seconds.items()},
        "processor_seconds": {name: round(some, 3) for name, some in used_s.items()},
        "ratios": {
            name: {
                "ratio": round(seconds[above] / seconds[below], 2),
                **of_processor(used_s.get(above), used_s.get(below)),
                "goal": f"{bound} {goal}",
            }
            for bound, some in (("at least", RATIOS), ("at most", COSTS))
            for name, (above, below, goal) in some.items()
        },
    }  # fmt: skip


def of_processor(above_s: float | None, below_s: float | None) -> Mapping[str, float]:
    """Tell the ratio of processor time, where it was taken."""
    if above_s is None or below_s is None:
        return {}
    return {"of_processor": round(above_s / below_s, 2)}


def processor_s() -> float:
    """Tell how long this process, and all below it, living or ended, have used a processor."""
    above: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            words = (place / "stat").read_text(encoding="ascii", errors="replace")
            told = words.rpartition(")")[2].split()
            above[int(place.name)] = int(told[1])
            ticks[int(place.name)] = sum(map(int, told[11:15]))
    own = {os.getpid()}
    while more := {pid for pid, parent in above.items() if parent in own} - own:
        own |= more
    return sum(ticks[pid] for pid in own) / os.sysconf("SC_CLK_TCK")


def copies(url: str, folder: Path) -> dict[str, Act]:
    """Name the ways to copy a history to bronze."""
    settings = Settings(url, ["mail"])

    def copy(engine: str, number: int) -> None:
        place = place_of(str(folder / f"{engine}-{number}"))
        pipeline(place, settings, engine=engine).run(["bronze"], lambda _: None)

    return {
        "bronze": lambda number: copy("spark", number),
        "bronze by duckdb": lambda number: copy("duckdb", number),
    }


def fill(url: str, rows: int, *, told: Callable[[list[Ended]], list[Row]]) -> None:
    """Make a history as a worker does that drains shard after shard, BATCH jobs a transaction."""
    app = Dueline(url)
    app.queues.engine.catalog.configure("mail", shards=SHARDS)
    now_us = app.store.clock_us() - rows * APART_US
    ids = Ids().many(rows, now_us)
    for start in range(0, rows, CHUNK):
        shards: dict[int, list[Ended]] = defaultdict(list)
        for number in range(start, min(rows, start + CHUNK)):
            one = done(ids[number], shard_of(number), now_us + number * APART_US)
            shards[one.job.lane.shard].append(one)
        for some in shards.values():
            for first in range(0, len(some), BATCH):
                app.store.append(told(some[first : first + BATCH]))
    app.close()


def shard_of(number: int) -> int:
    """Let the last shard hold few rows."""
    return SHARDS - 1 if number % RARE == 0 else number % (SHARDS - 1)


def done(job_id: JobId, shard: int, at_us: int) -> Ended:
    """Let a job end."""
    claimed_us = at_us // CLAIM_US * CLAIM_US
    job = Job(
        Lane("mail", shard, 0, 0, ""), claimed_us - 1, job_id, 0, claimed_us - at_us % 977,
        claimed_us - at_us % 983, "shop.charge", JSON, b"[]", b"", at_us, 1, UNCLAIMED_TOKEN,
        "host:1:abcdef", claimed_us,
    )  # fmt: skip
    return Ended(job, Done(b""), at_us - 400, at_us)


def each(done: list[Ended]) -> list[Row]:
    """Tell of each attempt in a row of its own, as where each is settled by itself."""
    return [row_of(attempt_of(one, outcome="done", error=""), one.job) for one in done]


def readings(spark: Any, url: str, folder: Path, rows: int) -> dict[str, Act]:  # noqa: ANN401
    """Name the reads that are measured; each has a frame of its own, and so a plan."""
    whole = read(spark, url, "attempts")
    assert whole.count() == rows, "the history that was made is not what is read"
    whole.write.parquet(str(folder / "parquet"))
    whole.write.json(str(folder / "json"))
    narrow = spark.read.format("dueline").schema("job_id string, outcome string, ended timestamp")
    rare = f"shard = {SHARDS - 1}"
    return {
        "attempts": lambda _: drain(read(spark, url, "attempts")),
        "parquet": lambda _: drain(spark.read.parquet(str(folder / "parquet"))),
        "json": lambda _: drain(spark.read.schema(whole.schema).json(str(folder / "json"))),
        "projection": lambda _: drain(narrow.options(store=url, table="attempts").load()),
        "count": lambda _: read(spark, url, "attempts").count(),
        "pushdown": lambda _: read(spark, url, "attempts", pushdown=True).where(rare).count(),
    }


def writings(spark: Any, folder: Path, rows: int) -> dict[str, Act]:  # noqa: ANN401
    """Name the writes that are measured; each goes to a file of its own."""
    frame = orders(spark, rows, parts=2)

    def put(number: int, mode: str) -> None:
        url = queue_at(folder / f"{mode}-{number}.db")
        counts = enqueue(frame, url, queue="mail", task="shop.charge", writeMode=mode)
        assert counts[:2] == (rows, rows), counts

    same = the_same(frame.toArrow())

    def insert(number: int) -> None:
        database = raw.make_raw(folder / f"raw-{number}.db", "NORMAL")
        raw.insert_at_once(database, same)
        database.close()

    def loop(number: int) -> None:
        app = Dueline(f"sqlite:///{folder / f'loop-{number}.db'}?synchronous=NORMAL")

        @app.task(name="shop.charge", queue="mail")
        def charge(order: int) -> None:
            """Do nothing."""

        for row in frame.collect():
            charge.enqueue(*json.loads(row.payload))
        app.close()

    return {
        "loop": loop,
        "raw": insert,
        "enqueue": lambda number: put(number, "direct"),
        "staged": lambda number: put(number, "staged"),
    }


def the_same(data: pa.Table) -> list[raw.Row]:
    """Make the very rows that the sink makes of data, as raw inserts bind them.

    They are in the order of their ids, which is the fastest for SQLite.
    """
    now_us = time.time_ns() // 1000
    form = Form("mail", "shop.charge")
    found = pa.concat_batches([new_jobs(one, form, now_us=now_us) for one in data.to_batches()])
    cells = in_order(found).select(["id", "task", "codec", "body"]).to_pydict().values()
    return [
        (1, now_us, one, 0, now_us, now_us, task, codec, body, b"", now_us)
        for one, task, codec, body in zip(*cells, strict=True)
    ]


if __name__ == "__main__":
    main()
