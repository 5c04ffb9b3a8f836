"""The state of a queue at a past time, from its history.

`past_arrow` does the same without Spark.
"""

from collections.abc import Mapping
from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812  (as all of Spark's users write)

from dueline.spark.pipeline.audit_rules import RUN

WAITING: Final = ("enqueued", "changed", "retried", "snoozed", "given_back", "crashed")
RANKS: Final[Mapping[str, int]] = {"enqueued": 0, "changed": 2}
"""Order of events at one timestamp under one claim; the last one counts."""


def state_at(bronze: DataFrame, instant_us: int) -> DataFrame:
    """Return the state of each job at a time.

    A job that ran when the history was read appears in its state before that claim. A job whose
    lease had expired, and that no worker had taken over, appears as running if its outcome was
    recorded late. Such a claim does not appear if the job was then cancelled or retried by hand.

    Args:
        bronze: The table `attempts`, of queues whose history is `all`.
        instant_us: The time.

    Returns:
        queue, job_id, state (waiting, running, dead, or the final state), priority, tenant,
        attempt (claims so far), of the job's last run if its id was enqueued again. Scheduled,
        ready and retrying jobs are all waiting: a history does not hold until when a job waits.
    """
    rank = F.when(F.col("worker") != "", 1)
    for outcome, number in RANKS.items():
        rank = rank.when(F.col("outcome") == outcome, number)
    state = F.when(F.col("outcome").isin(*WAITING), "waiting").otherwise(F.col("outcome"))
    ended, claimed = F.unix_micros("ended"), F.unix_micros("claimed")
    shown = [F.col(name) for name in ("priority", "tenant")]
    place = [F.col("enqueued"), F.col("attempt"), rank.otherwise(3)]
    was = F.when(ended <= instant_us, F.struct(*place, ended, state.alias("state"), *shown))
    holds = (F.col("worker") != "") & (claimed <= instant_us) & (ended > instant_us)
    held = F.when(holds, F.struct("enqueued", "attempt", F.lit("running").alias("state"), *shown))
    claim = Window.partitionBy(*RUN, "attempt", F.col("worker") != "")
    first = F.row_number().over(claim.orderBy("at", "outcome"))  # as for silver
    once = bronze.withColumn("first", first).where("worker = '' OR first = 1")
    jobs = once.groupBy("queue", "job_id").agg(F.max(was).alias("was"), F.max(held).alias("held"))
    jobs = jobs.where("was IS NOT NULL OR held IS NOT NULL")
    latest = [F.struct(f"{one}.enqueued", f"{one}.attempt") for one in ("held", "was")]
    is_held = F.col("was").isNull() | (latest[0] > latest[1])
    return jobs.select(
        "queue",
        "job_id",
        *[
            F.when(is_held, F.col(f"held.{name}")).otherwise(F.col(f"was.{name}")).alias(name)
            for name in ("state", "priority", "tenant", "attempt")
        ],
    )
