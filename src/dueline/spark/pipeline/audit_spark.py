"""The audit of a history on Spark.

`audit_arrow` does the same without Spark.
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
    """Find violations of the rules in `audit_rules`.

    Args:
        attempts: The table `attempts`, with all rows.
        living: Jobs that have a row (job_id, optionally enqueued), read before the attempts, or
            while the queue was idle. Without `enqueued`, a row belongs to the last run of its job
            id. Without this table, no rule on lost jobs is applied.
        expected: All enqueued jobs (job_id). Without it, no rule on unexpected jobs is applied.
        results: The table `results` (job_id, finished, value), to compare results with the
            digests in the history.
        promises: Further rules.
        known: Facts about the store.

    Returns:
        The findings, and the rules that were applied.
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
        _with_words(findings),
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
        enqueue_events = attempts.where("worker = '' AND outcome = 'enqueued'")
        enqueue_events = enqueue_events.where(F.col("queue").isin(*known.exact)).groupBy(
            "queue", *RUN
        )
        again = enqueue_events.agg(F.count_distinct("id").alias("enqueue_events")).where(
            "enqueue_events > 1"
        )
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
    """Yield attempts whose stored result differs from the one that they had."""
    if results is not None and "digest" in once.columns:  # older versions have no digests
        kept = results.select("job_id", F.col("finished").alias("ended"), "value")
        digest = F.substring(F.sha2(F.col("value").cast("binary"), _SHA_BITS), 1, DIGEST_DIGITS)
        both = once.where("outcome = 'done' AND digest IS NOT NULL").join(
            kept.where("value IS NOT NULL"), ["job_id", "ended"]
        )
        yield both.where(digest != F.col("digest")), "another result"


def _silent(
    attempts: DataFrame, living: DataFrame | None, expected: DataFrame | None, known: Known
) -> Iterator[tuple[DataFrame, str]]:
    """Yield jobs that have only an enqueue event, and no row."""
    if living is None:
        return
    none = F.lit(0).alias("attempt")
    seen = attempts.where("worker <> '' OR outcome <> 'skipped'")
    is_over = F.col("outcome").isin(*ENDED)
    runs = seen.groupBy(*RUN).agg(
        F.max("queue").alias("queue"), F.max((F.col("worker") != "") | is_over).alias("is_seen")
    )
    newest = F.max("enqueued").over(Window.partitionBy("job_id"))
    runs = runs.withColumn("last_enqueued", newest).where("NOT is_seen")
    runs = _with_lives(runs, living)
    yield runs.where(_is_absent(known)).withColumn("attempt", none), "no trace"
    if expected is not None:
        gone = expected.select("job_id").distinct()
        gone = gone.join(seen, "job_id", "left_anti").join(living, "job_id", "left_anti")
        nothing = {"queue": F.lit(None).cast("string"), "enqueued": F.lit(None).cast("timestamp")}
        yield gone.withColumns({**nothing, "attempt": none}), "no trace"


def _with_lives(rows: DataFrame, living: DataFrame) -> DataFrame:
    """Add `lives`: true if the run has a row, else null."""
    key = [name for name in RUN if name in living.columns]
    alive = living.select(*key).distinct().withColumn("lives", F.expr("true"))
    rows = rows.join(alive, key, "left")
    if "enqueued" in key:
        return rows
    return rows.withColumn("lives", F.expr("CASE WHEN enqueued = last_enqueued THEN lives END"))


def _with_words(findings: DataFrame) -> DataFrame:
    """Replace the name of each rule by its verdict and words."""
    verdict, words = (_map({name: rule[place] for name, rule in RULES.items()}) for place in (0, 1))
    rule = F.col("rule")
    return findings.select(verdict[rule].alias("verdict"), *_COLUMNS, words[rule].alias("words"))


def _map(values: Mapping[str, object]) -> Column:
    return F.create_map(*[F.lit(one) for pair in values.items() for one in pair])


def _with_runs(rows: DataFrame) -> DataFrame:
    """Add values of all rows of a run, and the last enqueue time of the job id."""
    run, job = Window.partitionBy(*RUN), Window.partitionBy("job_id")
    outcome, is_event = F.col("outcome"), F.col("worker") == ""
    is_enqueue = is_event & (outcome == "enqueued")
    sets_place = is_enqueue | (is_event & (outcome == "changed"))
    ends = is_event & outcome.isin(*ENDED)

    def each(condition: Column, value: Column) -> Column:
        return F.collect_set(F.when(condition, value)).over(run)

    attempt = F.col("attempt")
    return rows.select(
        "*",
        F.max("enqueued").over(job).alias("last_enqueued"),
        F.max(outcome.isin(*ENDED)).over(run).alias("has_ended"),
        F.min(F.when(outcome.isin(*ENDED), attempt)).over(run).alias("end"),
        each(is_enqueue, F.col("id")).alias("enqueue_events"),
        each(is_event & (outcome == "changed"), attempt).alias("changed"),
        each((is_event & (outcome == "changed")) | ends, attempt).alias("fences"),
        *[each(sets_place, F.col(name)).alias(f"placed_{name}") for name in _PLACE],
    )


def _with_order(claims: DataFrame) -> DataFrame:
    """Keep one row of each attempt, with values of its other rows and of the previous attempt."""
    claim = Window.partitionBy(*RUN, "attempt")
    outcome = F.col("outcome")
    # A worker that was presumed dead may have written its own row, too (rule F3).
    is_crash = _is_of_dead_worker()
    is_final = outcome.isin(*FINAL) & ~is_crash

    def several(condition: Column, value: Column) -> Column:
        return F.size(F.collect_set(F.when(condition, value)).over(claim)) > 1

    marked = claims.withColumns(
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
        marked.where("number = 1")
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
        "started before enqueued": started < F.unix_micros("enqueued") - EARLY_US_MAX,
    }
    if known.now_us is not None:
        is_own = F.col("outcome") != "crashed"  # such a row has the end of the lease
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
    """Return the rules that an attempt breaks in relation to the previous attempt, or an end."""
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
        values = F.col(f"placed_{name}")
        is_first = (F.size("enqueue_events") == 0) & (F.col(name) == F.col(f"first_{name}"))
        rules[f"another {name}"] = ~F.array_contains(values, F.col(name)) & ~is_first
    if known.exact:
        is_exact = F.col("queue").isin(*known.exact)
        retried = F.exists("changed", lambda fence: (fence >= before) & (fence < attempt))
        rules["after its death"] = is_exact & (F.col("before") == "dead") & ~retried
        rules["not enqueued"] = is_exact & (F.size("enqueue_events") == 0) & _is_last()
        explained = F.size(F.filter("fences", lambda fence: (fence > before) & (fence < attempt)))
        rules["missing"] = is_exact & (attempt - before - 1 - explained > 0) & ~_is_of_dead_worker()
    if promises.attempts:
        most = _map(promises.attempts)[F.col("task")]
        rules["over attempts"] = F.col("is_failure") & (F.col("failures") == most)
    return rules


def _of_loss(known: Known) -> dict[str, Column]:
    """Return the rules that the last attempt of a job without a row breaks."""
    is_lost = _is_last() & _is_absent(known) & ~F.col("has_ended")
    is_dead = F.col("outcome") == "dead"
    return {"gone": is_lost & ~is_dead, "dead and gone": is_lost & is_dead}


def _is_of_dead_worker() -> Column:
    """Return whether another worker wrote the row because the attempt's own worker had died.

    That worker may have died, too, before it wrote a row for the previous attempt.
    """
    is_end = F.col("outcome").isin("dead", "lost") & F.col("started").isNull()
    return (F.col("outcome") == "crashed") | is_end


def _is_last() -> Column:
    return F.col("attempt") == F.col("last")


def _is_absent(known: Known) -> Column:
    """Return whether a run has no row; false in queues whose history is incomplete."""
    is_absent = F.col("lives").isNull()
    return is_absent if known.whole is None else is_absent & F.col("queue").isin(*known.whole)
