"""How long simulations of many jobs take (P9).

`.venv-spark/bin/python -m benchmarks.foresight_size` writes tables with that many recorded jobs, of
four tenants and three priorities, and times one setting and two side by side: in this process
(`--jobs 1000000`), or on Spark (`--engine spark --jobs 10000000`).
"""

import argparse
import resource
import tempfile
import time
from pathlib import Path

import duckdb

from dueline import Dueline
from dueline.api.connect import existing_engine
from dueline.foresight.replay import Task
from dueline.foresight.scenario import Changes
from dueline.foresight.target import target_of
from dueline.spark.pipeline.bronze import prepare
from dueline.spark.pipeline.delta import place_of
from dueline.spark.pipeline.engine import Settings
from dueline.spark.pipeline.pipeline import pipeline
from dueline.spark.pipeline.tables import BATCH, BRONZE, open_table
from dueline.spark.pipeline.what_if import Period

PORTION = 1_000_000
SLOTS, RUN_US, LOAD = 32, 40_000, 0.8
ROWS = """
    SELECT 'mail' AS queue, md5(i::VARCHAR) AS id, md5(i::VARCHAR) AS job_id, 'mail.send' AS task,
        'tenant ' || (i % 4) AS tenant, 'done' AS outcome, '' AS error, 'w' || (i % 4) AS worker,
        NULL::VARCHAR AS digest, '' AS limits, 0 AS shard, 1 AS attempt,
        (i % 3)::INTEGER AS priority,
        NULL::INTEGER AS codec, NULL::INTEGER AS payload_bytes, NULL::BLOB AS payload,
        make_timestamptz(ready) AS enqueued, make_timestamptz(ready) AS due,
        make_timestamptz(ready + 1000) AS claimed, make_timestamptz(ready + 2000) AS started,
        make_timestamptz(ready + 2000 + run) AS ended, make_timestamptz(ready + 2000 + run) AS "at",
        NULL::TIMESTAMPTZ AS again, 1::BIGINT AS batch
    FROM (
        SELECT i, $begin + (i * $gap)::BIGINT AS ready,
            (-ln(1 - random()) * $run)::BIGINT AS run
        FROM range($first, $until) AS numbers(i)
    )"""


def fill(lake: Path, url: str, jobs: int) -> None:
    """Write bronze with recorded jobs."""
    table = open_table(place_of(str(lake)), BRONZE.name)
    with existing_engine(url) as engine:
        prepare(table, engine, None, None)
        begin = engine.store.clock_us() - int(jobs * RUN_US / SLOTS / LOAD) - 10**9
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    for first in range(0, jobs, PORTION):
        values = {
            "begin": begin, "gap": RUN_US / SLOTS / LOAD, "run": RUN_US,
            "first": first, "until": min(first + PORTION, jobs),
        }  # fmt: skip
        rows = connection.sql(ROWS, params=values).to_arrow_table()
        table.commit(table.writer.write(rows), positions={BATCH: first // PORTION + 1})
        table.refresh()


def main() -> None:
    """Print how long each takes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=1_000_000)
    parser.add_argument("--engine", choices=("duckdb", "spark"), default="duckdb")
    parser.add_argument("--master", default="local[2]")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        url, lake = f"sqlite:///{folder}/jobs.db", Path(folder, "lake")
        app = Dueline(url)
        app.queue("mail")
        app.admin.count("queue:mail")
        app.close()
        begun = time.monotonic()
        fill(lake, url, asked.jobs)
        print(f"wrote {asked.jobs:,} jobs in {time.monotonic() - begun:.0f} s", flush=True)
        settings = [Changes("8 workers", 8, 8), Changes("6 workers", 6, 8)]
        made = pipeline(place_of(str(lake)), Settings(url, ()), engine=asked.engine,
                        master=asked.master, conf={"spark.driver.memory": "3g"})  # fmt: skip
        for some in (settings[:1], settings):
            begun = time.monotonic()
            simulator = made.simulator(Period(0, 1 << 62), some, print).simulator
            prepared = time.monotonic() - begun
            found = simulator.run(list(map(Task, some)))
            took = time.monotonic() - begun
            latencies = found[0].latencies(target_of("p99<1s"))
            print(f"{len(some)} setting(s) in {took:.0f} s, of which {prepared:.0f} s to prepare:"
                  f" {latencies}", flush=True)  # fmt: skip
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        print(f"memory of this process: {most // 1024:,} MiB")


if __name__ == "__main__":
    main()
