"""The demo on Spark: a table, real workers, a kill, an audit.

`make demo-spark` runs it (JOBS=20000). It ends well only if the audit finds nothing, and each
row of the table is told of in the history.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from dueline.config import STORE_VARIABLE
from dueline.spark import enqueue, lake, read, session
from examples.demo_spark.tasks import QUEUE, app

JOBS = int(os.environ.get("JOBS", "20000"))
LEASE_S = 2
WORKER = (sys.executable, "-m", "dueline", "worker", "examples.demo_spark.tasks:app", "--burst")


def main() -> int:
    """Run the demo; answer the exit code."""
    folder = Path(tempfile.mkdtemp(prefix="dueline-spark-"))
    os.environ[STORE_VARIABLE] = f"sqlite:///{folder / 'demo.db'}?synchronous=NORMAL"
    app.queue(QUEUE, shards=4, lease=LEASE_S)
    app.queues.catalog.settings(QUEUE)
    spark = session("demo", master="local[2]", conf={"spark.log.level": "ERROR"})
    orders = spark.range(1, JOBS + 1).selectExpr(
        "concat('order ', id) AS job_id", "concat('[', id, ']') AS payload"
    )
    options = {"queue": QUEUE, "task": "square", "writeId": "orders"}
    print(f"enqueued from a table: {enqueue(orders, app.url, **options).added:,} jobs")
    work()
    print(f"enqueued once more: {enqueue(orders, app.url, **options).added:,} jobs")
    is_clean = judge(spark, folder)
    spark.stop()
    app.close()
    shutil.rmtree(folder)
    return 0 if is_clean else 1


def work() -> None:
    """Have two workers run the jobs; kill one, and let others see to what it held."""
    victim, survivor = (subprocess.Popen(WORKER, stderr=subprocess.DEVNULL) for _ in range(2))
    while victim.poll() is None and waiting() > JOBS * 0.6:
        time.sleep(0.05)
    victim.kill()
    print(f"killed a worker with {waiting():,} jobs to go")
    survivor.wait()
    while waiting():
        time.sleep(LEASE_S / 4)
        subprocess.run(WORKER, check=True, stderr=subprocess.DEVNULL)


def waiting() -> int:
    """Count the jobs that have not ended."""
    return sum(1 for _ in app.queues.jobs_of(QUEUE))


def judge(spark: SparkSession, folder: Path) -> bool:
    """Copy the history to Parquet as a stream does, make tables of it, audit it."""
    bronze = folder / "bronze"
    stream = spark.readStream.format("dueline").options(store=app.url, table="attempts")
    copied = stream.load().writeStream.format("parquet").trigger(availableNow=True)
    copied.option("checkpointLocation", f"{bronze}.checkpoint").start(
        str(bronze)
    ).awaitTermination()
    attempts = spark.read.parquet(str(bronze)).cache()
    silver = lake.silver(attempts).cache()
    show("attempts by minute", lake.gold_minute(silver).orderBy("minute"))
    said = lake.audit(attempts, living=read(spark, app.url, "jobs", queue=QUEUE))
    findings = said.findings.collect()
    told = silver.select("job_id").distinct().count()
    print(f"jobs in the history: {told:,} of {JOBS:,}; attempts: {silver.count():,}")
    print(f"audited: {', '.join(said.looked_for)}; not audited: {', '.join(said.not_audited)}")
    for finding in findings[:20]:
        print(f"  {finding.verdict}: {finding.job_id} {finding.words} (claim {finding.attempt})")
    print(f"findings: {len(findings)}")
    return not findings and told == JOBS


def show(title: str, frame: DataFrame) -> None:
    """Print a small table."""
    names = ["minute", "attempts", "done", "retried", "crashed", "dead", "takeovers"]
    print(f"{title}: {', '.join(names)}")
    for row in frame.select(*names).collect():
        print("  " + ", ".join(str(value) for value in row))


if __name__ == "__main__":
    sys.exit(main())
