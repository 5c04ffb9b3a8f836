"""Reads of the tables of a real history on Spark, against Parquet of the same rows."""

from pathlib import Path
from typing import Any, Final

from benchmarks import real_history
from benchmarks.on_spark_streams import Act
from dueline import Dueline
from dueline.core.store import Row
from dueline.spark import read

HISTORY: Final = ("attempts", "events", "results")
DAY_US: Final = 86_400_000_000
BURST_US: Final = 10_000_000
SHARDS: Final = 8
APPENDED: Final = 5_000

RATIOS: Final = {
    "real_attempts_against_parquet": ("parquet of real attempts", "real attempts", 0.6),
    "real_events_against_parquet": ("parquet of real attempts", "real events", 0.45),
    "real_results_against_parquet": ("parquet of real results", "real results", 0.5),
    "jobs_against_parquet": ("parquet of jobs", "jobs", 0.5),
    "burst_against_spread_rows": ("spread", "burst", 0.8),
}
"""By name: what takes longer when we are good, what is ours, and the goal, which is the least."""


def readings(spark: Any, folder: Path, jobs: int) -> dict[str, Act]:  # noqa: ANN401
    """Return the reads that are measured; a job makes a little more than two events."""
    url = f"sqlite:///{folder / 'real.db'}?synchronous=NORMAL"
    real_history.fill(url, jobs)
    waiting = f"sqlite:///{folder / 'jobs.db'}?synchronous=NORMAL"
    enqueue(waiting, jobs * 3 // 2)
    acts: dict[str, Act] = {}
    for name, store, table in (
        *((f"real {table}", url, table) for table in HISTORY), ("jobs", waiting, "jobs")
    ):  # fmt: skip
        place = str(folder / f"parquet of {name}")
        read(spark, store, table).write.parquet(place)
        acts[name] = _drain(spark, store, table)
        acts[f"parquet of {name}"] = _drain_files(spark, place)
    for name, width_us in (("spread", DAY_US), ("burst", BURST_US)):
        store = f"sqlite:///{folder / name}.db?synchronous=NORMAL"
        append(store, jobs, width_us)
        acts[name] = _drain(spark, store, "stream", stream="log")
    return acts


def enqueue(url: str, jobs: int) -> None:
    """Enqueue jobs that wait."""
    app, charge = real_history.open_app(url)
    for tenant in real_history.TENANTS:
        calls = [(number,) for number in range(jobs // len(real_history.TENANTS))]
        charge.using(tenant=tenant, after=3600).enqueue_many(calls, chunk=APPENDED)
    app.close()


def append(url: str, rows: int, width_us: int) -> None:
    """Append rows within some time of a day, and one row a day later, in each shard."""
    app = Dueline(url)
    app.stream("log", shards=SHARDS)
    app.stream("log").append({})
    for shard in range(SHARDS):
        times_us = [1 + number * width_us // rows for number in range(shard, rows, SHARDS)]
        some = [Row("log", shard, us, b"%016d" % us, b'{"value":1}') for us in times_us]
        for start in range(0, len(some), APPENDED):
            app.store.append(some[start : start + APPENDED])
        app.store.append([Row("log", shard, 2 * DAY_US, b"last", b'{"value":2}')])
    app.close()


def _drain(spark: Any, url: str, table: str, **options: object) -> Act:  # noqa: ANN401
    return lambda _: drain(read(spark, url, table, **options))


def _drain_files(spark: Any, place: str) -> Act:  # noqa: ANN401
    return lambda _: drain(spark.read.parquet(place))


def drain(frame: Any) -> None:  # noqa: ANN401
    """Read all of a table into nothing."""
    frame.write.format("noop").mode("overwrite").save()
