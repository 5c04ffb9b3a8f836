"""Jobs that can be replayed, as functions of data frames."""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812  (as all of Spark's users write)

from dueline.spark.pipeline.audit_rules import RUN
from dueline.spark.pipeline.replay import (
    ENDS,
    LARGE,
    NAMED_MAX,
    NOT_KEPT,
    Chosen,
    Found,
    Kind,
    LeftOut,
    Order,
)


def with_arguments(bronze: DataFrame, chosen: Chosen) -> DataFrame:
    """Return the last end of each chosen job, with its arguments.

    Args:
        bronze: The whole table, with enqueue events and other rows.
        chosen: The filter.

    Returns:
        job_id, enqueued, queue, task, tenant, priority, outcome, ended, and codec,
        payload_bytes, payload of that run's enqueue event: null if they were not kept.
    """
    last = F.row_number().over(Window.partitionBy("job_id").orderBy(F.desc("at"), F.desc("id")))
    ends = bronze.where(F.col("outcome").isin(*ENDS)).withColumn("last", last).where("last = 1")
    ended = F.unix_micros("ended")
    ends = ends.where(F.col("outcome").isin(*chosen.outcomes))
    ends = ends.where((ended >= chosen.since_us) & (ended < chosen.until_us))
    if chosen.queues:
        ends = ends.where(F.col("queue").isin(*chosen.queues))
    if chosen.task:
        ends = ends.where(F.col("task") == chosen.task)
    ends = ends.select(*RUN, "queue", "task", "tenant", "priority", "outcome", "ended")
    enqueue_events = bronze.where("outcome = 'enqueued' AND codec IS NOT NULL")
    once = F.row_number().over(Window.partitionBy(*RUN).orderBy(F.desc("at"), F.desc("id")))
    enqueue_events = enqueue_events.withColumn("last", once).where("last = 1")
    return ends.join(
        enqueue_events.select(*RUN, "codec", "payload_bytes", "payload"), list(RUN), "left"
    )


def found(ends: DataFrame) -> Found:
    """Count the jobs by kind, and list those that cannot be replayed."""
    is_kept, is_large = F.col("payload").isNotNull(), F.col("payload_bytes").isNotNull()
    counts = ends.groupBy("queue", "task", "outcome").agg(
        F.count("*"),
        F.count_if(is_kept),
        F.count_if(~is_kept & is_large),
        F.count_if(~is_large),
    )
    why = F.when(is_large, LARGE).otherwise(NOT_KEPT)
    left_out = ends.where(~is_kept).select("queue", "job_id", why.alias("why"))
    named = left_out.orderBy("queue", "job_id").limit(NAMED_MAX).collect()
    kinds = sorted(Kind(*row) for row in counts.collect())
    return Found(kinds, [LeftOut(*row) for row in named])


def calls(ends: DataFrame, order: Order) -> DataFrame:
    """Return the rows to enqueue: one for each job whose arguments are kept."""
    rank = F.row_number().over(Window.orderBy("ended", "job_id")) - 1
    due_us = F.lit(order.start_us) + F.floor(rank * F.lit(order.gap_us)).cast("bigint")
    return ends.where("payload IS NOT NULL").select(
        F.concat("job_id", F.lit(f"@{order.name}")).alias("job_id"),
        F.timestamp_micros(due_us).alias("due"),
        *("queue", "task", "tenant", "priority", "codec", "payload"),
    )
