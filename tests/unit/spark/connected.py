"""Spark Connect: a client without a JVM of its own, and a server that it starts.

`python -m tests.unit.spark.connected FOLDER`. It enqueues a table, reads, follows and appends, and
is refused.
"""

import os
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from dueline import BadInput, Dueline
from dueline.spark import append_once, enqueue, job_id, job_id_of, lag, read, register
from tests.harness.spark.environment import PLAIN_PLANS
from tests.harness.spark.sentences import told as told_on_top

ROWS = 100


def main(folder: Path) -> None:
    """Do all of it."""
    app = Dueline(f"sqlite:///{folder}/jobs.db")

    @app.task(name="note", queue="mail")
    def note(number: int) -> None:
        assert number >= 0

    os.environ["PYSPARK_PYTHON"] = sys.executable  # of the server, which has to know dueline
    builder: Any = SparkSession.builder
    conf = {**PLAIN_PLANS, "spark.sql.session.timeZone": "UTC"}
    spark = builder.remote("local[2]").config(map=conf).getOrCreate()
    assert not hasattr(spark, "_jvm")
    app.queue("mail", shards=2)
    app.queues.engine.catalog.settings("mail")  # is stored now
    rows = spark.range(ROWS).selectExpr(
        "concat('n', id) AS job_id", "concat('[', id, ']') AS payload"
    )
    assert enqueue(rows, app.url, queue="mail", task="note").added == ROWS
    app.run_worker(burst=True)
    told = read(spark, app.url, "attempts")
    named = rows.select(job_id("job_id").alias("job_id"))
    assert named.join(told, "job_id").count() == ROWS
    assert told.filter(told.job_id == job_id_of("n7")).count() == 1
    register(spark, store=app.url)
    (row,) = spark.sql("SELECT count(*) AS many FROM attempts").collect()
    assert row.many == ROWS

    stream = spark.readStream.format("dueline").options(store=app.url, table="attempts").load()
    writer = stream.writeStream.format("parquet")
    writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
    query = writer.trigger(availableNow=True).start(str(folder / "attempts"))
    assert query.awaitTermination(300)
    assert lag(query).rows == 0
    assert spark.read.parquet(str(folder / "attempts")).count() == ROWS

    table = str(folder / "table")
    assert [append_once(rows, 0, table, query="rows") for _ in range(2)] == [True, False]

    with pytest.raises(PySparkException) as caught:
        spark.read.format("dueline").options(store=app.url, table="stream").load().collect()
    told_on_top(caught.value, BadInput, "No stream is named.")
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
