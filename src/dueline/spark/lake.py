"""What a history tells, as tables made of tables.

Functions of data frames, and nothing else: read the attempts however you like (a store, Parquet),
and write what comes out wherever you like. `lake_arrow` does the same without Spark.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812  (as all of Spark's users write)

from dueline.checker import EARLY_US_MAX
from dueline.spark.lake_promises import crowded, passed_by
from dueline.spark.rules import (
    ENDED,
    NO_PROMISES,
    OUTCOMES,
    RULES,
    RUN,
    SPAN_COLUMNS,
    Audited,
    Promises,
    audited,
)

_SILVER: Final = (
    "queue", "shard", "job_id", "attempt", "task", "tenant", "priority", "enqueued", "due",
    "claimed", "started", "ended", "outcome", "error", "worker",
)  # fmt: skip


def silver(attempts: DataFrame) -> DataFrame:
    """Make one row of each attempt, with the spans that people ask for.

    Args: attempts: the table `attempts`; rows that were told twice are one.

    Returns: its columns, and wait_us (from when it could first run), lateness_us (from its due
    time), run_us, is_takeover (the attempt before it crashed).
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
    """Count what ended in each minute, by queue and tenant.

    Returns: queue, tenant, minute, attempts, a count for each outcome, takeovers, and the sums
    of the spans; sums of minutes are those of hours.
    """
    return silver_attempts.groupBy("queue", "tenant", _minute().alias("minute")).agg(
        F.count("*").alias("attempts"),
        *[F.count_if(F.col("outcome") == name).alias(name) for name in OUTCOMES],
        F.count_if("is_takeover").alias("takeovers"),
        *[F.coalesce(F.sum(name), F.lit(0)).alias(name) for name in SPAN_COLUMNS],
    )


def gold_lateness(silver_attempts: DataFrame) -> DataFrame:
    """Count the lateness of starts, in steps that double; histograms of minutes add up.

    Returns: queue, tenant, minute, step (0: not late; n: below 2**n us), attempts.
    """
    return _steps(silver_attempts, "lateness_us")


def gold_run(silver_attempts: DataFrame) -> DataFrame:
    """Count how long handlers ran, as `gold_lateness` does the lateness of starts."""
    return _steps(silver_attempts, "run_us")


def _steps(silver_attempts: DataFrame, name: str) -> DataFrame:
    span = F.col(name)
    step = F.when(span <= 0, 0).otherwise(F.length(F.bin(span))).cast("int")
    started = silver_attempts.where(span.isNotNull())
    return started.groupBy("queue", "tenant", _minute().alias("minute"), step.alias("step")).agg(
        F.count("*").alias("attempts")
    )


def audit(
    attempts: DataFrame,
    *,
    living: DataFrame | None = None,
    expected: DataFrame | None = None,
    promises: Promises = NO_PROMISES,
    moved: DataFrame | None = None,
) -> Audited:
    """Find what must not be, by the verdicts of `dueline.checker`.

    Args:
      attempts: the table `attempts`, of a queue whose history is whole from its first job on.
      living: the jobs that have a row (job_id, enqueued), read after the attempts; without them
        nothing is said about lost jobs. Without enqueued a row counts for a job's last run.
      expected: the jobs that were acknowledged (job_id); without them nothing is said about jobs
        that nobody enqueued, nor about those that left no trace.
      promises: what else should hold. moved: the jobs (job_id) whose time or priority was changed
        by hand, whose order nobody can judge.

    Returns: verdict, job_id, enqueued, attempt, words of each finding; and which verdicts were
    looked for.
    """
    known = None if expected is None else expected.select("job_id")
    return _audit(attempts, living, known, promises, moved)


def _audit(
    attempts: DataFrame,
    living: DataFrame | None,
    expected: DataFrame | None,
    promises: Promises,
    moved: DataFrame | None,
) -> Audited:
    """Find what must not be. expected: of jobs (job_id), or of runs of jobs (job_id, enqueued)."""
    claim = Window.partitionBy(*RUN, "attempt")
    claims = F.size(F.collect_set(F.struct("claimed", "worker")).over(claim))
    places = attempts.withColumn("claims", claims)
    first = Window.partitionBy(*RUN, "attempt").orderBy("at", "outcome")
    once = places.withColumn("place", F.row_number().over(first)).where("place = 1")
    life = Window.partitionBy(*RUN).orderBy("attempt")
    whole = Window.partitionBy(*RUN)
    is_end = F.col("outcome").isin(*ENDED)
    seen = once.select(
        *RUN, "attempt", "outcome", "claims",
        *[F.unix_micros(name).alias(name) for name in ("due", "claimed", "started", "ended")],
        F.lag("outcome").over(life).alias("before"),
        F.lag(F.unix_micros("claimed")).over(life).alias("before_claimed"),
        F.lag(F.unix_micros("ended")).over(life).alias("before_ended"),
        F.min(F.when(is_end, F.col("attempt"))).over(whole).alias("end"),
        F.max("attempt").over(whole).alias("last"),
        F.max("enqueued").over(Window.partitionBy("job_id")).alias("newest"),
    )  # fmt: skip
    if living is not None:
        seen = _marked(seen, living, "lives")
        if "enqueued" not in living.columns:
            seen = seen.withColumn("lives", F.expr("CASE WHEN enqueued = newest THEN lives END"))
    if expected is not None:
        seen = _marked(seen, expected, "asked")
    rules = _rules(has_living=living is not None, has_expected=expected is not None)
    found = [
        F.when(rules[name], F.struct(F.lit(verdict).alias("verdict"), F.lit(words).alias("words")))
        for name, (verdict, words) in RULES.items()
        if name in rules
    ]
    findings = seen.select(
        F.explode(F.array_compact(F.array(*found))).alias("found"), *RUN, "attempt"
    ).select("found.verdict", *RUN, "attempt", "found.words")
    if living is not None and expected is not None:
        gone = expected.select(*_key_of(expected)).distinct()
        for others in (attempts, living):
            gone = gone.join(
                others, [one for one in _key_of(others) if one in gone.columns], "left_anti"
            )
        if "enqueued" not in gone.columns:
            gone = gone.withColumn("enqueued", F.lit(None).cast("timestamp"))
        gone = gone.withColumn("attempt", F.lit(0))
        findings = findings.unionByName(_found(gone, "no trace"))
    for some, rule in _unkept(once, promises, moved):
        findings = findings.unionByName(_found(some, rule))
    return audited(
        findings,
        has_living=living is not None,
        has_expected=expected is not None,
        promises=promises,
    )


def _unkept(
    once: DataFrame, promises: Promises, moved: DataFrame | None
) -> Iterator[tuple[DataFrame, str]]:
    """Find what breaks promises, each with its rule."""
    if promises.capacities:
        yield crowded(once, promises.capacities), "crowded"
    if promises.passed is not None:
        yield passed_by(once, moved, promises.passed), "passed by"


def _found(jobs: DataFrame, rule: str) -> DataFrame:
    verdict, words = RULES[rule]
    told = F.lit(verdict).alias("verdict")
    return jobs.select(told, *RUN, "attempt", F.lit(words).alias("words"))


def _key_of(table: DataFrame) -> list[str]:
    """Return the columns by which a table names runs of jobs, or jobs."""
    return [name for name in RUN if name in table.columns]


def _marked(seen: DataFrame, known: DataFrame, mark: str) -> DataFrame:
    """Add a column that is true where another table names the run, or its job, and else null."""
    key = _key_of(known)
    return seen.join(known.select(*key).distinct().withColumn(mark, F.expr("true")), key, "left")


def judge(
    bronze: DataFrame,
    *,
    living: DataFrame,
    whole: Sequence[str],
    expected: DataFrame | None = None,
    promises: Promises = NO_PROMISES,
) -> Audited:
    """Audit all rows of a history, with those that are no attempts.

    A job that was cancelled while it waited leaves a row only where the history is `all`, so lost
    jobs are looked for in such queues alone.

    Args:
      bronze: the table `attempts` as the store has it. living: the jobs that have a row (job_id,
      enqueued), read before the history was. whole: the queues whose history is `all`.
      expected: the jobs that were acknowledged (job_id), where somebody else knows them.
      promises: what else should hold.

    Returns: as `audit`.
    """
    attempts, told = bronze.where("worker <> ''"), bronze.where("worker = ''")
    is_whole = F.col("queue").isin(*whole)
    accounted = living.select(*RUN).unionByName(
        told.where(F.col("outcome").isin(*ENDED)).select(*RUN)
    )
    accounted = accounted.unionByName(bronze.where(~is_whole).select(*RUN))
    if expected is None:
        births = told.where((F.col("outcome") == "enqueued") & is_whole)
        known = attempts.select(*RUN).unionByName(births.select(*RUN))
    else:
        known = expected.select("job_id")
    moved = told.where("outcome = 'changed'")
    said = _audit(attempts, accounted if whole else None, known, promises, moved)
    return said if expected is not None else said.without("unexpected")


def _minute() -> Column:
    return F.date_trunc("minute", F.col("ended"))


def _rules(*, has_living: bool, has_expected: bool) -> dict[str, Column]:
    """Say of a row, with that of the attempt before it, what must not be."""
    is_end = F.col("outcome").isin(*ENDED)
    after_end = F.col("attempt") > F.col("end")
    crashed = F.col("before") == "crashed"
    claimed = F.col("claimed")
    rules = {
        "two ends": after_end & is_end,
        "after its end": after_end & ~is_end,
        "before the lease ended": crashed & (claimed < F.col("before_ended")),
        "late verdict": ~crashed & (F.col("before_ended") > claimed + EARLY_US_MAX),
        "early": F.col("started") < F.col("due") - EARLY_US_MAX,
        "time went back": claimed < F.col("before_claimed") - EARLY_US_MAX,
        "one fence": F.col("claims") > 1,
    }
    if has_living:
        is_over = is_end | (F.col("outcome") == "dead") | F.col("end").isNotNull()
        is_last = F.col("attempt") == F.col("last")
        rules["gone"] = is_last & ~is_over & F.col("lives").isNull()
        is_dead = (F.col("outcome") == "dead") & F.col("end").isNull()
        rules["dead and gone"] = is_last & is_dead & F.col("lives").isNull()
    if has_expected:
        rules["nobody asked"] = F.col("asked").isNull() & (F.col("attempt") == F.col("last"))
    return rules
