"""Queues and streams on Spark."""

from dueline.spark.keys import job_id_of

try:
    from dueline.spark.consuming import Consuming, consume
    from dueline.spark.key_columns import job_id
    from dueline.spark.putting import Written
    from dueline.spark.session import enqueue, read, session
except ModuleNotFoundError as error:  # the tables of plain rows do without Spark
    if (error.name or "").partition(".")[0] not in ("pandas", "pyarrow", "pyspark"):
        raise

__all__ = ["Consuming", "Written", "consume", "enqueue", "job_id", "job_id_of", "read", "session"]
