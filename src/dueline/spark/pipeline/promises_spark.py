"""Violations of promised capacities and order, for the audit.

Functions of data frames. `promises_arrow` does the same without Spark.
"""

from collections.abc import Mapping

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812  (as all of Spark's users write)

from dueline.spark.pipeline.audit_rules import EARLY_US_MAX, RUN, SEEN_US

_END, _CLAIM, _BEGIN = range(3)
"""Order of events at one timestamp, in favor of the queue."""


def crowded(attempts: DataFrame, capacities: Mapping[str, int]) -> DataFrame:
    """Find attempts that started while the allowed number of their task was running.

    Crashed attempts do not count: their end is recorded too late.

    Args:
        attempts: One row for each attempt.
        capacities: Maximum number of attempts at the same time, by task.

    Returns:
        queue, job_id, enqueued, attempt.
    """
    most = F.create_map(*[F.lit(one) for pair in capacities.items() for one in pair])
    is_meant = F.col("task").isin(*capacities) & (F.col("outcome") != "crashed")
    who = ("task", "queue", "job_id", "enqueued", "attempt")
    ran = attempts.where(is_meant & F.col("started").isNotNull()).select(
        *who,
        F.unix_micros("started").alias("started"),
        (F.unix_micros("ended") - EARLY_US_MAX).alias("stopped"),
    ).where("stopped > started")  # fmt: skip
    begins = ran.select(*who, F.col("started").alias("t"), F.lit(1).alias("step"))
    ends = ran.select(*who, F.col("stopped").alias("t"), F.lit(-1).alias("step"))
    until = Window.partitionBy("task").orderBy("t", "step", "job_id", "enqueued", "attempt")
    until = until.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    running = begins.unionByName(ends).withColumn("running", F.sum("step").over(until))
    return running.where((F.col("step") == 1) & (F.col("running") > most[F.col("task")])).select(
        "queue", "job_id", "enqueued", "attempt"
    )


def passed_by(attempts: DataFrame, moved: DataFrame | None, most: int) -> DataFrame:
    """Find first attempts of jobs that were ready while too many less urgent jobs were claimed.

    Jobs of one queue, shard and tenant are compared. Later attempts are not judged: a history does
    not hold when a job became ready again.

    Args:
        attempts: One row for each attempt.
        moved: Jobs whose time or priority was changed (job_id, enqueued); they are not judged.
        most: Maximum number of less urgent jobs.

    Returns:
        queue, job_id, enqueued, attempt.
    """
    lane = ["queue", "shard", "tenant"]
    claimed = F.unix_micros("claimed")
    ready = F.greatest(F.unix_micros("due"), F.unix_micros("enqueued")) + SEEN_US
    firsts = attempts.where("attempt = 1")
    if moved is not None:
        key = [name for name in RUN if name in moved.columns]
        firsts = firsts.join(moved.select(*key), key, "left_anti")
    waits = firsts.select(
        *lane, F.col("priority").alias("level"), "job_id", "enqueued", "attempt",
        claimed.alias("claimed"), ready.alias("ready"),
    ).where("claimed > ready")  # fmt: skip
    levels = waits.select(*lane, "level").distinct()
    others = attempts.select(*lane, "priority", claimed.alias("t")).join(levels, lane)
    none = F.lit(None)
    events = others.where("priority < level").select(
        *lane, "level", "t", F.lit(_CLAIM).alias("kind"),
        none.cast("string").alias("job_id"), none.cast("timestamp").alias("enqueued"),
        none.cast("int").alias("attempt"),
    )  # fmt: skip
    for kind, name in ((_BEGIN, "ready"), (_END, "claimed")):
        edges = waits.select(
            *lane, "level", F.col(name).alias("t"), F.lit(kind).alias("kind"),
            "job_id", "enqueued", "attempt",
        )  # fmt: skip
        events = events.unionByName(edges)
    until = Window.partitionBy(*lane, "level").orderBy("t", "kind")
    until = until.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    is_claim = (F.col("kind") == _CLAIM).cast("int")
    counted = events.withColumn("before", F.sum(is_claim).over(until)).where(f"kind <> {_CLAIM}")
    sign = F.when(F.col("kind") == _END, F.col("before")).otherwise(-F.col("before"))
    who = ("queue", "job_id", "enqueued", "attempt")
    passed = counted.groupBy(*who).agg(F.sum(sign).alias("passed"))
    return passed.where(F.col("passed") > most).select(*who)
