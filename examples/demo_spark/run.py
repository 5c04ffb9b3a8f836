"""The demo on Spark: a table, real workers, a killed worker, an audit.

`make demo-spark` runs it (JOBS=1000000: three minutes; JOBS=20000: half a minute). It succeeds
only if the audit finds nothing, and the history has each row of the table.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from pyspark.sql import SparkSession

from dueline.api.config import STORE_VARIABLE
from dueline.spark import enqueue, session
from dueline.spark.pipeline.delta import place_of
from dueline.spark.pipeline.engine import Settings
from dueline.spark.pipeline.pipeline import pipeline
from dueline.spark.pipeline.queries import Spark
from dueline.spark.pipeline.tables import open_table
from examples.demo_spark.tasks import QUEUE, app

JOBS = int(os.environ.get("JOBS", "1000000"))
LEASE_S = 2
REPORT = Path(tempfile.gettempdir()) / "dueline-demo-spark.html"
WORKER = (sys.executable, "-m", "dueline", "worker", "examples.demo_spark.tasks:app", "--burst")


def main() -> int:
    """Run the demo; return the exit code."""
    folder = Path(tempfile.mkdtemp(prefix="dueline-spark-"))
    os.environ[STORE_VARIABLE] = f"sqlite:///{folder / 'demo.db'}?synchronous=NORMAL"
    app.queue(QUEUE, shards=4, lease=LEASE_S, history="all")
    app.queues.engine.catalog.settings(QUEUE)
    spark = session("demo", master="local[2]", conf={"spark.log.level": "ERROR"})
    orders = spark.range(1, JOBS + 1).selectExpr(
        "concat('order ', id) AS job_id", "concat('[', id, ']') AS payload"
    )
    options = {"queue": QUEUE, "task": "square", "writeId": "orders"}
    print(f"enqueued from a table: {enqueue(orders, app.url, **options).added:,} jobs")
    work()
    print(f"enqueued again: {enqueue(orders, app.url, **options).added:,} jobs")
    is_clean = judge(spark, folder)
    spark.stop()
    app.close()
    shutil.rmtree(folder)
    return 0 if is_clean else 1


def work() -> None:
    """Run the jobs with two workers; kill one, and let others take over its jobs."""
    victim, survivor = (subprocess.Popen(WORKER, stderr=subprocess.DEVNULL) for _ in range(2))
    while victim.poll() is None and waiting() > JOBS * 0.6:
        time.sleep(0.05)
    victim.kill()
    print(f"killed a worker with {waiting():,} jobs remaining")
    survivor.wait()
    while waiting():
        time.sleep(LEASE_S / 4)
        subprocess.run(WORKER, check=True, stderr=subprocess.DEVNULL)


def waiting() -> int:
    """Return the number of jobs that have not ended."""
    return sum(1 for _ in app.queues.engine.jobs_of(QUEUE))


def judge(spark: SparkSession, folder: Path) -> bool:
    """Run the pipeline on the history: tables, verification, audit and report."""
    lake = place_of(str(folder / "lake"))
    made = pipeline(lake, Settings(app.url, queues=(QUEUE,)), engine="spark")
    for step in made.run([], print):
        print(f"{step.name}: {step.rows:,} rows in {step.files} file(s)")
    checks = made.verify()
    for check in checks:
        print(f"{'good' if check.is_good else 'BAD'}: {check.name}: {check.finding}")
    said = made.audit(print)
    silver = Spark(spark).frame(open_table(lake, "silver").view())
    found = silver.select("job_id").distinct().count()
    print(f"jobs in the history: {found:,} of {JOBS:,}; attempts: {silver.count():,}")
    print(f"audited: {', '.join(said.looked_for)}; not audited: {', '.join(said.not_audited)}")
    for finding in said.findings[:20]:
        print(f"  {finding['verdict']}: {finding['job_id']} {finding['words']}")
    for standing in said.queues:
        print(f"audit of {standing.queue}: {standing.verdict}")
    REPORT.write_text(made.report(f"The demo: {JOBS:,} jobs"), encoding="utf-8")
    print(f"report: {REPORT}")
    return not said.has_failed and all(check.is_good for check in checks) and found == JOBS


if __name__ == "__main__":
    sys.exit(main())
