"""Executors of a small cluster are killed.

`python -m tests.unit.spark.cluster FOLDER`.
It enqueues a table, runs the jobs, and reads what they told of themselves; in the first two an
executor is killed once, with all that it holds.
"""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from dueline import Dueline
from dueline.spark import consume, enqueue, read, session
from tests.harness.spark.environment import BRIEF, PLAIN_PLANS

ROWS = 200
QUEUE = "cluster"
SHARDS = 2
LEASE_S = 3600
"""No claim ends because a store stands still: only the deaths of executors repeat a job."""
ENQUEUED, RAN = "killed while it enqueued", "killed while it ran"
MASTER_VARIABLE = "DUELINE_TEST_MASTER"
STORE_VARIABLE = "DUELINE_TEST_STORE"
"""The store, if it is not a file in the folder."""

CONF = {
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": BRIEF,
    "spark.log.level": "ERROR",
    **PLAIN_PLANS,
}


def kill_executor(folder: Path, word: str) -> None:
    """Kill the Java process above this one, and this one, once for each word."""
    with suppress(FileExistsError):
        os.close(os.open(folder / word, os.O_CREAT | os.O_EXCL))
        daemon = Path(f"/proc/{os.getppid()}/stat").read_text(encoding="ascii")
        os.kill(int(daemon.rpartition(")")[2].split()[1]), signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)


def main(folder: Path) -> None:
    """Enqueue a table, then run its jobs."""
    file = f"sqlite:///{folder}/jobs.db?synchronous=NORMAL"
    app = Dueline(os.environ.get(STORE_VARIABLE, file))
    app.queue(QUEUE, shards=SHARDS, lease=LEASE_S)

    @app.task(name="work", queue=QUEUE)
    def work(number: int) -> int:
        (folder / f"{number}.{os.getpid()}.ran").touch()
        if number == ROWS // 2:
            kill_executor(folder, RAN)
        return -number

    def dies(batches: Iterator[Any]) -> Iterator[Any]:
        for place, batch in enumerate(batches):
            if place == 2:
                kill_executor(folder, ENQUEUED)
            yield batch

    spark = session("cluster", master=os.environ[MASTER_VARIABLE], conf=CONF)
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "20")
    rows = spark.range(0, ROWS, 1, 2).selectExpr(
        "concat('n', id) AS job_id", "concat('[', id, ']') AS payload"
    )
    app.queues.engine.catalog.settings(QUEUE)
    enqueue(rows.mapInArrow(dies, rows.schema), app.url, queue=QUEUE, task="work", chunkRows=20)
    consume(spark, app, QUEUE, members=2, burst=True).awaitTermination()
    told = read(spark, app.url, "attempts", queue=QUEUE, minPartitions=2)
    assert told.groupBy("job_id").count().count() == ROWS
    stream = spark.readStream.format("dueline").options(store=app.url, table="attempts").load()
    writer = stream.writeStream.format("parquet")
    writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
    query = writer.trigger(availableNow=True).start(str(folder / "attempts"))
    assert query.awaitTermination(300)
    followed = spark.read.parquet(str(folder / "attempts"))
    assert followed.groupBy("job_id").count().count() == ROWS
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
