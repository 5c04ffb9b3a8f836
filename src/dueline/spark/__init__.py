"""Queues and streams on Spark."""

from dueline.spark.writing.keys import job_id_of

try:
    from dueline.spark.reading.frame import read
    from dueline.spark.reading.lag import Lag, lag
    from dueline.spark.register import register
    from dueline.spark.runtime.refusals import refusal_in
    from dueline.spark.runtime.session import session
    from dueline.spark.worker.spark_worker import Consuming, consume
    from dueline.spark.writing.enqueue import Written
    from dueline.spark.writing.frame import enqueue
    from dueline.spark.writing.key_columns import job_id

    from dueline.spark.pipeline.alerts import alerts  # isort: skip  (needs deltalake, too)
    from dueline.spark.writing.append import append_once  # isort: skip  (as above)
except ModuleNotFoundError as error:  # the Arrow pipeline works without Spark
    if (error.name or "").partition(".")[0] not in ("deltalake", "pandas", "pyarrow", "pyspark"):
        raise

__all__ = [
    "Consuming",
    "Lag",
    "Written",
    "alerts",
    "append_once",
    "consume",
    "enqueue",
    "job_id",
    "job_id_of",
    "lag",
    "read",
    "refusal_in",
    "register",
    "session",
]
