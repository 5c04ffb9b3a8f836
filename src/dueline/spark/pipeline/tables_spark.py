"""Tables of a history, as functions of data frames.

Read the attempts from a store or from Parquet, and write the results anywhere. `tables_arrow` does
the same without Spark.
"""

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812  (as all of Spark's users write)

from dueline.spark.pipeline.audit_rules import OUTCOMES, RUN, SPAN_COLUMNS

_SILVER: Final = (
    "queue", "shard", "job_id", "attempt", "task", "tenant", "priority", "enqueued", "due",
    "claimed", "started", "ended", "outcome", "error", "worker",
)  # fmt: skip


def silver(attempts: DataFrame) -> DataFrame:
    """Return one row for each attempt, with durations.

    Args:
        attempts: The table `attempts`; repeated rows of an attempt are merged.

    Returns:
        Its columns, and wait_us (since the job was ready), lateness_us (start latency: scheduled
        time to start), run_us, is_takeover (the previous attempt crashed).
    """
    claim = Window.partitionBy(*RUN, "attempt").orderBy("at", "outcome")
    once = attempts.withColumn("place", F.row_number().over(claim)).where("place = 1")
    started, ended = F.unix_micros("started"), F.unix_micros("ended")
    could = F.greatest(F.unix_micros("due"), F.unix_micros("enqueued"))
    life = Window.partitionBy(*RUN).orderBy("attempt")
    return once.select(
        *_SILVER,
        (started - could).alias("wait_us"),
        (started - F.unix_micros("due")).alias("lateness_us"),
        (ended - started).alias("run_us"),
        F.coalesce(F.lag("outcome").over(life) == "crashed", F.expr("false")).alias("is_takeover"),
    )


def gold_minute(silver_attempts: DataFrame) -> DataFrame:
    """Count ended attempts in each minute, by queue and tenant.

    Returns:
        queue, tenant, minute, attempts, a count for each outcome, takeovers, and the sums of
        durations. All of them can be added up over minutes.
    """
    return silver_attempts.groupBy("queue", "tenant", _minute().alias("minute")).agg(
        F.count("*").alias("attempts"),
        *[F.count_if(F.col("outcome") == name).alias(name) for name in OUTCOMES],
        F.count_if("is_takeover").alias("takeovers"),
        *[F.coalesce(F.sum(name), F.lit(0)).alias(name) for name in SPAN_COLUMNS],
    )


def gold_lateness(silver_attempts: DataFrame) -> DataFrame:
    """Count start latencies in doubling steps; histograms of minutes can be added up.

    Returns:
        queue, tenant, minute, step (0: not late; n: below 2**n us), attempts.
    """
    return _steps(silver_attempts, "lateness_us")


def gold_run(silver_attempts: DataFrame) -> DataFrame:
    """Count run times of handlers, as `gold_lateness` does start latencies."""
    return _steps(silver_attempts, "run_us")


def _steps(silver_attempts: DataFrame, name: str) -> DataFrame:
    span = F.col(name)
    step = F.when(span <= 0, 0).otherwise(F.length(F.bin(span))).cast("int")
    started = silver_attempts.where(span.isNotNull())
    return started.groupBy("queue", "tenant", _minute().alias("minute"), step.alias("step")).agg(
        F.count("*").alias("attempts")
    )


def _minute() -> Column:
    return F.date_trunc("minute", F.col("ended"))
