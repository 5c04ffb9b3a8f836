"""The audit of a history on Spark.

`lake_arrow_audit` does the same without Spark.
"""

from collections.abc import Iterator, Mapping
from itertools import chain

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812  (as all of Spark's users write)

from dueline.core.attempt import DIGEST_DIGITS
from dueline.spark.pipeline.audit_rules import (
    AHEAD_US_MAX,
    EARLY_US_MAX,
    ENDED,
    FINAL,
    NO_PROMISES,
    NOTHING_KNOWN,
    RULES,
    RUN,
    Audited,
    Known,
    Promises,
    audited,
)
from dueline.spark.pipeline.promises_spark import crowded, passed_by

_SHA_BITS = 256
_COLUMNS = ("queue", *RUN, "attempt")
_PLACE = ("task", "queue", "tenant")


def audit(
    attempts: DataFrame,
    *,
    living: DataFrame | None = None,
    expected: DataFrame | None = None,
    results: DataFrame | None = None,
    promises: Promises = NO_PROMISES,
    known: Known = NOTHING_KNOWN,
) -> Audited:
    """Find what must not happen, by the rules of `dueline.spark.pipeline.audit_rules`.

    Args:
      attempts: The table `attempts`, with all its rows.
      living: The jobs that have a row (job_id, and maybe enqueued), read before the attempts, or
        of a queue at rest. Without `enqueued` a row is that of the last run of its job id. Without
        them no rule on lost jobs is applied.
      expected: All jobs that were enqueued (job_id). Without them no rule is applied on jobs that
        nobody enqueued.
      results: The table `results` (job_id, finished, value), to compare each result with its
        digest in the history.
      promises: Further rules.
      known: Facts about the store.

    Returns:
      The findings, and which rules were applied.
    """
    rows = _with_runs(attempts.where("worker <> '' OR outcome <> 'skipped'"))
    if living is not None:
        rows = _with_lives(rows, living)
    claims = _with_order(rows.where("worker <> ''"))
    if expected is not None:
        asked = expected.select("job_id").distinct().withColumn("asked", F.expr("true"))
        claims = claims.join(asked, "job_id", "left")
    rules = _of_rows(known) | _of_claims() | _of_order() | _of_run(known, promises)
    if living is not None:
        rules |= _of_loss(known)
    if expected is not None:
        rules["nobody asked"] = F.col("asked").isNull() & _is_last()
    found = [
        F.when(rule, F.struct(F.lit(name).alias("rule"), F.col("attempt").alias("place")))
        for name, rule in rules.items()
    ]
    broken = claims.select(
        F.explode(F.array_compact(F.array(*found))).alias("found"), "queue", *RUN
    )
    findings = broken.select("queue", *RUN, F.col("found.place").alias("attempt"), "found.rule")
    others = (
        _silent(attempts, living, expected, known),
        _of_enqueues(attempts, known),
        _unkept(_once(attempts), attempts, promises),
        _of_results(_once(attempts), results),
    )
    for some, rule in chain.from_iterable(others):
        findings = findings.unionByName(some.select(*_COLUMNS, F.lit(rule).alias("rule")))
    return audited(
        _told(findings),
        has_living=living is not None,
        has_expected=expected is not None,
        has_results=results is not None,
        promises=promises,
        known=known,
    )


def _once(attempts: DataFrame) -> DataFrame:
    """Return the first row of each attempt."""
    first = Window.partitionBy(*RUN, "attempt").orderBy("at", "outcome")
    once = attempts.where("worker <> ''").withColumn("number", F.row_number().over(first))
    return once.where("number = 1")


def _of_enqueues(attempts: DataFrame, known: Known) -> Iterator[tuple[DataFrame, str]]:
    """Yield jobs that were enqueued twice."""
    if known.exact:
        births = attempts.where("worker = '' AND outcome = 'enqueued'")
        births = births.where(F.col("queue").isin(*known.exact)).groupBy("queue", *RUN)
        again = births.agg(F.count_distinct("id").alias("births")).where("births > 1")
        yield again.withColumn("attempt", F.lit(0)), "enqueued twice"


def _unkept(
    once: DataFrame, attempts: DataFrame, promises: Promises
) -> Iterator[tuple[DataFrame, str]]:
    """Yield attempts that break promises."""
    if promises.capacities:
        yield crowded(once, promises.capacities), "crowded"
    if promises.passed is not None:
        moved = attempts.where("worker = '' AND outcome = 'changed'")
        yield passed_by(once, moved, promises.passed), "passed by"


def _of_results(once: DataFrame, results: DataFrame | None) -> Iterator[tuple[DataFrame, str]]:
    """Yield attempts of which another result is kept than the one that they had."""
    if results is not None and "digest" in once.columns:  # not in files of an older version
        kept = results.select("job_id", F.col("finished").alias("ended"), "value")
        digest = F.substring(F.sha2(F.col("value").cast("binary"), _SHA_BITS), 1, DIGEST_DIGITS)
        both = once.where("outcome = 'done' AND digest IS NOT NULL").join(
            kept.where("value IS NOT NULL"), ["job_id", "ended"]
        )
        yield both.where(digest != F.col("digest")), "another result"


def _silent(
    attempts: DataFrame, living: DataFrame | None, expected: DataFrame | None, known: Known
) -> Iterator[tuple[DataFrame, str]]:
    """Yield jobs that were enqueued, and left no other row and no job."""
    if living is None:
        return
    none = F.lit(0).alias("attempt")
    told = attempts.where("worker <> '' OR outcome <> 'skipped'")
    is_over = F.col("outcome").isin(*ENDED)
    runs = told.groupBy(*RUN).agg(
        F.max("queue").alias("queue"), F.max((F.col("worker") != "") | is_over).alias("is_told")
    )
    newest = F.max("enqueued").over(Window.partitionBy("job_id"))
    runs = runs.withColumn("last_enqueued", newest).where("NOT is_told")
    runs = _with_lives(runs, living)
    yield runs.where(_is_absent(known)).withColumn("attempt", none), "no trace"
    if expected is not None:
        gone = expected.select("job_id").distinct()
        gone = gone.join(told, "job_id", "left_anti").join(living, "job_id", "left_anti")
        nothing = {"queue": F.lit(None).cast("string"), "enqueued": F.lit(None).cast("timestamp")}
        yield gone.withColumns({**nothing, "attempt": none}), "no trace"


def _with_lives(rows: DataFrame, living: DataFrame) -> DataFrame:
    """Add `lives`: true where the run has a row, and else null."""
    key = [name for name in RUN if name in living.columns]
    alive = living.select(*key).distinct().withColumn("lives", F.expr("true"))
    rows = rows.join(alive, key, "left")
    if "enqueued" in key:
        return rows
    return rows.withColumn("lives", F.expr("CASE WHEN enqueued = last_enqueued THEN lives END"))


def _told(findings: DataFrame) -> DataFrame:
    """Replace the name of each rule by its verdict and its words."""
    verdict, words = (_map({name: rule[place] for name, rule in RULES.items()}) for place in (0, 1))
    rule = F.col("rule")
    return findings.select(verdict[rule].alias("verdict"), *_COLUMNS, words[rule].alias("words"))


def _map(values: Mapping[str, object]) -> Column:
    return F.create_map(*[F.lit(one) for pair in values.items() for one in pair])


def _with_runs(rows: DataFrame) -> DataFrame:
    """Add what the rows of a run say together, and when the job id was enqueued last."""
    run, job = Window.partitionBy(*RUN), Window.partitionBy("job_id")
    outcome, is_event = F.col("outcome"), F.col("worker") == ""
    is_birth = is_event & (outcome == "enqueued")
    is_told = is_birth | (is_event & (outcome == "changed"))
    ends = is_event & outcome.isin(*ENDED)

    def each(condition: Column, value: Column) -> Column:
        return F.collect_set(F.when(condition, value)).over(run)

    attempt = F.col("attempt")
    return rows.select(
        "*",
        F.max("enqueued").over(job).alias("last_enqueued"),
        F.max(outcome.isin(*ENDED)).over(run).alias("has_ended"),
        F.min(F.when(outcome.isin(*ENDED), attempt)).over(run).alias("end"),
        each(is_birth, F.col("id")).alias("births"),
        each(is_event & (outcome == "changed"), attempt).alias("changed"),
        each((is_event & (outcome == "changed")) | ends, attempt).alias("fences"),
        *[each(is_told, F.col(name)).alias(f"told_{name}") for name in _PLACE],
    )


def _with_order(claims: DataFrame) -> DataFrame:
    """Make one row of each attempt, with what its other rows and the attempt before it say."""
    claim = Window.partitionBy(*RUN, "attempt")
    outcome = F.col("outcome")
    # A worker that was taken for dead may have written its own row, too (rule F3).
    is_crash = _is_of_dead_worker()
    is_final = outcome.isin(*FINAL) & ~is_crash

    def several(condition: Column, value: Column) -> Column:
        return F.size(F.collect_set(F.when(condition, value)).over(claim)) > 1

    told = claims.withColumns(
        {
            "is_split": several(~is_crash, F.unix_micros("ended"))
            | several(is_final, F.struct("outcome", "error"))
            | several(~outcome.isin(*FINAL) & ~is_crash, outcome),
            "claims": F.size(F.collect_set(F.struct("claimed", "worker")).over(claim)),
            "has_crashed": F.max(is_crash).over(claim),
            "number": F.row_number().over(claim.orderBy("at", "outcome")),
        }
    )
    run = Window.partitionBy(*RUN)
    life = run.orderBy("attempt")
    earlier = life.rowsBetween(Window.unboundedPreceding, -1)
    deaths = F.coalesce(F.count_if(outcome == "dead").over(earlier), F.lit(0))
    failed = Window.partitionBy(*RUN, "deaths").orderBy("attempt")
    is_failure = (outcome == "retried") & ~F.col("has_crashed")
    return (
        told.where("number = 1")
        .select(
            "*",
            F.lag("outcome").over(life).alias("before"),
            F.lag(F.unix_micros("claimed")).over(life).alias("before_claimed"),
            F.lag(F.unix_micros("ended")).over(life).alias("before_ended"),
            F.coalesce(F.lag("attempt").over(life), F.lit(0)).alias("before_attempt"),
            F.max("attempt").over(run).alias("last"),
            deaths.alias("deaths"),
            *[F.first(name).over(life).alias(f"first_{name}") for name in _PLACE],
        )
        .select(
            "*",
            is_failure.alias("is_failure"),
            F.count_if(is_failure).over(failed).alias("failures"),
        )
    )


def _of_rows(known: Known) -> dict[str, Column]:
    """Return the rules that a row breaks by itself."""
    started, ended = F.unix_micros("started"), F.unix_micros("ended")
    rules = {
        "no start": (F.col("outcome") == "done") & started.isNull() & (F.col("task") != ""),
        "ended first": ended < started - EARLY_US_MAX,
        "started first": started < F.unix_micros("claimed") - EARLY_US_MAX,
        "started unborn": started < F.unix_micros("enqueued") - EARLY_US_MAX,
    }
    if known.now_us is not None:
        is_own = F.col("outcome") != "crashed"  # that row has the end of the lease
        rules["in the future"] = is_own & (ended > known.now_us + AHEAD_US_MAX)
    return rules


def _of_claims() -> dict[str, Column]:
    """Return the rules that the rows of one attempt break."""
    is_moved = F.exists("changed", lambda fence: fence < F.col("attempt"))
    is_early = F.unix_micros("started") < F.unix_micros("due") - EARLY_US_MAX
    return {
        "one fence": F.col("claims") > 1,
        "another end": F.col("is_split"),
        "early": is_early & ~is_moved,
    }


def _of_order() -> dict[str, Column]:
    """Return the rules that an attempt breaks beside the attempt before it, or an end."""
    is_end, after_end = F.col("outcome").isin(*ENDED), F.col("attempt") > F.col("end")
    crashed, claimed = F.col("before") == "crashed", F.unix_micros("claimed")
    return {
        "two ends": after_end & is_end,
        "after its end": after_end & ~is_end,
        "before the lease ended": crashed & (claimed < F.col("before_ended")),
        "late verdict": ~crashed & (F.col("before_ended") > claimed + EARLY_US_MAX),
        "time went back": claimed < F.col("before_claimed") - EARLY_US_MAX,
    }


def _of_run(known: Known, promises: Promises) -> dict[str, Column]:
    """Return the rules that need all rows of a run."""
    attempt, before = F.col("attempt"), F.col("before_attempt")
    rules = {}
    for name in _PLACE:
        values = F.col(f"told_{name}")
        is_first = (F.size("births") == 0) & (F.col(name) == F.col(f"first_{name}"))
        rules[f"another {name}"] = ~F.array_contains(values, F.col(name)) & ~is_first
    if known.exact:
        is_exact = F.col("queue").isin(*known.exact)
        retried = F.exists("changed", lambda fence: (fence >= before) & (fence < attempt))
        rules["after its death"] = is_exact & (F.col("before") == "dead") & ~retried
        rules["not enqueued"] = is_exact & (F.size("births") == 0) & _is_last()
        told = F.size(F.filter("fences", lambda fence: (fence > before) & (fence < attempt)))
        rules["missing"] = is_exact & (attempt - before - 1 - told > 0) & ~_is_of_dead_worker()
    if promises.attempts:
        most = _map(promises.attempts)[F.col("task")]
        rules["over attempts"] = F.col("is_failure") & (F.col("failures") == most)
    return rules


def _of_loss(known: Known) -> dict[str, Column]:
    """Return the rules that the last attempt of a job breaks that has no row."""
    is_lost = _is_last() & _is_absent(known) & ~F.col("has_ended")
    is_dead = F.col("outcome") == "dead"
    return {"gone": is_lost & ~is_dead, "dead and gone": is_lost & is_dead}


def _is_of_dead_worker() -> Column:
    """Return whether another worker wrote the row, since the attempt's own had died.

    That worker may have died before it could write a row for the attempt before, too.
    """
    is_end = F.col("outcome").isin("dead", "lost") & F.col("started").isNull()
    return (F.col("outcome") == "crashed") | is_end


def _is_last() -> Column:
    return F.col("attempt") == F.col("last")


def _is_absent(known: Known) -> Column:
    """Return whether a run has no row; False in queues whose history does not tell all."""
    is_absent = F.col("lives").isNull()
    return is_absent if known.whole is None else is_absent & F.col("queue").isin(*known.whole)
