"""Tables for operators, computed from other tables.

Functions of data frames, as in `tables_spark`. `insights_arrow` does the same without Spark.
"""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812  (as all of Spark's users write)

from dueline.spark.pipeline.audit_rules import ENDED, RUN
from dueline.spark.pipeline.thresholds import (
    CRASHES_MIN,
    FINGERPRINT_CHARACTERS_MAX,
    NUMBERS,
    SHARDS_MIN,
    SLOW_FACTOR,
    SLOW_STEP_MIN,
    STARTS_MIN,
    WINDOWS_US,
)


def flow(silver: DataFrame, events: DataFrame) -> DataFrame:
    """Count the jobs that became ready and that ended in each minute, by shard.

    Args:
        silver: Attempts.
        events: Other rows of the history (those without a worker).

    Returns:
        queue, shard, minute, came, went; their running difference is the backlog. Jobs without
        an attempt are known only if the history is `all`.
    """
    lives = [
        frame.select(
            "queue", "shard", *RUN,
            F.greatest("due", "enqueued").alias("could"),
            F.when(F.col("outcome").isin(*ENDED, "dead"), F.col("ended")).alias("gone"),
        )
        for frame in (silver, events.where("outcome <> 'changed'"))
    ]  # fmt: skip
    jobs = lives[0].unionByName(lives[1]).groupBy("queue", "shard", *RUN)
    jobs = jobs.agg(F.min("could").alias("could"), F.max("gone").alias("gone"))
    came = F.least("could", F.coalesce("gone", "could"))
    moves = jobs.select("queue", "shard", came.alias("at"), F.lit(1).alias("came")).unionByName(
        jobs.where("gone IS NOT NULL").select(
            "queue", "shard", F.col("gone").alias("at"), F.lit(0).alias("came")
        )
    )
    minute = F.date_trunc("minute", F.col("at")).alias("minute")
    return moves.groupBy("queue", "shard", minute).agg(
        F.sum("came").alias("came"), F.sum(1 - F.col("came")).alias("went")
    )


def slo(silver: DataFrame, *, target_us: int, objective: float, now_us: int) -> DataFrame:
    """Compute the share of starts on time and the error-budget burn rate.

    Args:
        silver: Attempts.
        target_us: Maximum start latency of a start that is on time.
        objective: Share of starts that should be on time, below 1.
        now_us: End of the windows.

    Returns:
        queue, started, in_time, share, and for each window before `now_us` the number of starts
        and the burn rate: 1 is on budget, 0 uses none of it, null if nothing started.
    """
    in_time = F.col("lateness_us") <= target_us
    starts = F.unix_micros("started")
    counts = [F.count("*").alias("started"), F.count_if(in_time).alias("in_time")]
    for name, span_us in WINDOWS_US.items():
        inside = (starts > now_us - span_us) & (starts <= now_us)
        counts += [
            F.count_if(inside).alias(f"started_{name}"),
            F.count_if(inside & in_time).alias(f"in_time_{name}"),
        ]
    counted = silver.where("started IS NOT NULL").groupBy("queue").agg(*counts)
    burns = [
        F.expr(f"1 - try_divide(in_time_{name}, started_{name})")
        .__truediv__(1 - objective)
        .alias(f"burn_{name}")
        for name in WINDOWS_US
    ]
    kept = [f"started_{name}" for name in WINDOWS_US]
    share = (F.col("in_time") / F.col("started")).alias("share")
    return counted.select("queue", "started", "in_time", share, *kept, *burns)


def fairness(gold_minute: DataFrame) -> DataFrame:
    """Compute the fairness between tenants in each minute, as Jain's index.

    Returns:
        queue, minute, tenants, attempts, jain: 1 if each tenant had as many attempts, 1/tenants
        if one had all. Tenants without attempts in a minute are not counted.
    """
    return gold_minute.groupBy("queue", "minute").agg(
        F.count("*").alias("tenants"),
        F.sum("attempts").alias("attempts"),
        (
            F.sum("attempts") * F.sum("attempts")
            / (F.count("*") * F.sum(F.col("attempts") * F.col("attempts")))
        ).alias("jain"),
    )  # fmt: skip


def suspicious(silver: DataFrame) -> DataFrame:
    """Find shards that are worse than others of their queue.

    Returns:
        queue, shard, reason, evidence, command.
    """
    late = F.col("lateness_us")
    step = F.when(late <= 0, 0).otherwise(F.length(F.bin(late)))
    shards = silver.groupBy("queue", "shard").agg(
        F.count("started").alias("started"),
        F.count_if(F.col("outcome") == "crashed").alias("crashed"),
        F.count("*").alias("attempts"),
        F.sort_array(F.collect_list(step)).alias("steps"),
    )
    place = ((F.col("started") + 1) / 2).cast("int")
    shards = shards.withColumn("step", F.when(F.col("started") > 0, F.element_at("steps", place)))
    queue = Window.partitionBy("queue")
    steps = F.sort_array(F.collect_list("step").over(queue))
    middle = F.element_at(steps, ((F.size(steps) + 1) / 2).cast("int"))
    shards = shards.select(
        "queue", "shard", "started", "crashed", "attempts", "step",
        F.count("*").over(queue).alias("shards"),
        middle.alias("usual"),
        F.sum("crashed").over(queue).alias("all_crashed"),
        F.sum("attempts").over(queue).alias("all_attempts"),
    )  # fmt: skip
    is_slow = (
        (F.col("started") >= STARTS_MIN)
        & (F.col("step") >= SLOW_STEP_MIN)
        & (F.col("step") >= F.col("usual") + SLOW_FACTOR)
    )
    of_others = F.col("all_crashed") - F.col("crashed")
    attempts_of_others = F.col("all_attempts") - F.col("attempts")
    is_deadly = (F.col("crashed") >= CRASHES_MIN) & (
        F.col("crashed") * attempts_of_others > 4 * of_others * F.col("attempts")
    )
    is_one_of_many = F.col("shards") >= SHARDS_MIN
    slow = shards.where(is_one_of_many & is_slow).select(
        "queue", "shard", F.lit("slow").alias("reason"),
        F.format_string(
            "half of %d starts are late by 2^%d us or more; the queue's by 2^%d",
            "started", F.col("step") - 1, F.col("usual") - 1,
        ).alias("evidence"),
    )  # fmt: skip
    deadly = shards.where(is_one_of_many & is_deadly).select(
        "queue", "shard", F.lit("crashes").alias("reason"),
        F.format_string(
            "%d of %d attempts crashed; of the other shards' %d of %d",
            "crashed", "attempts", of_others, attempts_of_others,
        ).alias("evidence"),
    )  # fmt: skip
    command = F.format_string("dueline shards lag --queue %s", "queue")
    return slow.unionByName(deadly).withColumn("command", command)


def poison(silver: DataFrame) -> DataFrame:
    """Find causes of dead jobs and dead workers, by task and error.

    Only attempts that ended dead, or crashes of jobs that crashed more than once, are counted.

    Returns:
        queue, task, fingerprint (the error's first line without numbers), jobs, attempts,
        crashed, dead, last.
    """
    bad = silver.where(F.col("outcome").isin("dead", "crashed")).withColumn(
        "fingerprint", _fingerprint(F.col("error"))
    )
    crashes = F.count_if(F.col("outcome") == "crashed").over(Window.partitionBy("queue", *RUN))
    bad = bad.withColumn("crashes", crashes)
    return (
        bad.where("outcome = 'dead' OR crashes > 1")
        .groupBy("queue", "task", "fingerprint")
        .agg(
            F.countDistinct("job_id").alias("jobs"),
            F.count("*").alias("attempts"),
            F.count_if(F.col("outcome") == "crashed").alias("crashed"),
            F.count_if(F.col("outcome") == "dead").alias("dead"),
            F.max("ended").alias("last"),
        )
    )


def _fingerprint(error: Column) -> Column:
    first = F.substring_index(error, "\n", 1)
    plain = F.regexp_replace(first, NUMBERS, "#")
    return F.substring(plain, 1, FINGERPRINT_CHARACTERS_MAX)
