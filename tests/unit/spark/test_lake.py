"""Tables made of a history, by two engines that agree to the row."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest

from dueline import Dueline

SECOND = 1_000_000
BORN = 1_795_000_020 * SECOND

Line = Mapping[str, Any]


def attempt(job: str, fence: int, outcome: str = "done", **changes: Any) -> Line:
    """Make an attempt that is as it should be: claimed a second after the one before ended."""
    claimed = BORN + fence * 10 * SECOND
    started = (changes.get("claimed") or claimed) + 1000
    if outcome in ("crashed", "expired"):
        started = None
    usual = {
        "queue": "mail", "shard": 0, "id": f"{job}-{fence}", "job_id": job, "attempt": fence,
        "task": "send", "tenant": "acme", "priority": 0, "enqueued": BORN, "due": BORN + SECOND,
        "claimed": claimed, "started": started, "ended": claimed + 9 * SECOND, "error": "",
        "outcome": outcome, "worker": "w1", "at": claimed + 9 * SECOND,
        "codec": None, "payload_bytes": None, "payload": None, "digest": None,
    }  # fmt: skip
    return usual | changes


CLEAN = [
    attempt("plain", 1),
    attempt("again", 1, "retried"),
    attempt("again", 2, "snoozed"),
    attempt("again", 3, "given_back"),
    attempt("again", 4),
    attempt("taken over", 1, "crashed"),
    attempt("taken over", 2, worker="w2"),
    attempt("redriven", 1, "dead"),
    attempt("redriven", 2),
    attempt("told twice", 1),
    attempt("told twice", 1, at=BORN + 90 * SECOND),
    attempt("told again", 1, "crashed", at=BORN + 95 * SECOND),
    attempt("told again", 1),
    attempt("over", 1, "expired"),
    attempt("waits", 1, "retried"),
    attempt("kept", 1, "dead", tenant="zeta", ended=BORN + 70 * SECOND),
]
LIVING = {"waits", "kept", "new"}

PLANTED: Mapping[str, tuple[list[Line], set[tuple[str, int]]]] = {
    "two ends": ([attempt("a", 1), attempt("a", 2)], {("finished twice", 2)}),
    "after its end": ([attempt("b", 1), attempt("b", 2, "retried")], {("illegitimate", 2)}),
    "before the lease ended": (
        [attempt("c", 1, "crashed", ended=BORN + 21 * SECOND), attempt("c", 2)],
        {("illegitimate", 2)},
    ),
    "late verdict": (
        [attempt("d", 1, "retried", ended=BORN + 25 * SECOND), attempt("d", 2)],
        {("stale", 2)},
    ),
    "early": ([attempt("e", 1, due=BORN + 11 * SECOND)], {("early", 1)}),
    "time went back": (
        [
            attempt("f", 1, "crashed", ended=BORN + 2 * SECOND),
            attempt("f", 2, claimed=BORN + 5 * SECOND),
        ],
        {("backwards", 2)},
    ),
    "one fence": (
        [attempt("g", 1), attempt("g", 1, claimed=BORN + 11 * SECOND, worker="w2")],
        {("backwards", 1)},
    ),
    "gone": ([attempt("h", 1, "retried")], {("lost", 1)}),
    "dead and gone": ([attempt("i", 1, "dead")], {("lost", 1)}),
    "no trace": ([], {("lost", 0)}),
    "nobody asked": ([attempt("k", 1)], {("unexpected", 1)}),
    "crowded": (
        [
            attempt("l", 1, task="narrow"),
            attempt("m", 1, task="narrow", started=BORN + 11 * SECOND),
        ],
        {("over capacity", 1)},
    ),
    "passed by": (
        [
            attempt("o", 1, priority=5, claimed=BORN + 16 * SECOND, shard=7),
            attempt("p", 1, priority=4, claimed=BORN + 11 * SECOND, shard=7),
            attempt("q", 1, priority=4, claimed=BORN + 12 * SECOND, shard=7),
            attempt("r", 1, priority=4, claimed=BORN + 16 * SECOND, shard=7),  # not before it
        ],
        {("order", 1)},
    ),
}
GHOST = "j"
CAPACITIES, PASSED = {"narrow": 1}, 1
STRANGER = "k"


def all_lines() -> list[Line]:
    """Lay all that is planted among what is as it should be."""
    return [*CLEAN, *(line for lines, _ in PLANTED.values() for line in lines)]


def ids(lines: list[Line]) -> set[str]:
    """Name the jobs of attempts."""
    return {line["job_id"] for line in lines}


def test_a_clean_history_is_clean() -> None:
    from dueline.spark.pipeline.audit_rules import Promises
    from dueline.spark.pipeline.tables_arrow import audit

    promises = Promises({"send": len(CLEAN)}, PASSED)
    said = audit(CLEAN, living=LIVING, expected=ids(CLEAN) | {"new"}, promises=promises)
    assert said.findings == []
    assert set(said.not_audited) == {"crossed", "unexplained", "duplicate", "incomplete",
                                     "over attempts"}  # fmt: skip


@pytest.mark.parametrize("rule", PLANTED)
def test_each_planted_fault_is_found_and_nothing_else(rule: str) -> None:
    from dueline.spark.pipeline.audit_rules import RULES, Promises
    from dueline.spark.pipeline.tables_arrow import audit

    lines, found = PLANTED[rule]
    expected = ids(CLEAN) | {"new"} | ids(lines) - {STRANGER}
    if rule == "no trace":
        expected.add(GHOST)
    promises = Promises(CAPACITIES, PASSED)
    said = audit([*CLEAN, *lines], living=LIVING, expected=expected, promises=promises)
    assert {(one["verdict"], one["attempt"]) for one in said.findings} == found
    assert {one["words"] for one in said.findings} == {RULES[rule].words}


def test_every_rule_is_planted_and_each_verdict_is_one_of_the_checker() -> None:
    from checker import VERDICTS
    from dueline.spark.pipeline.audit_rules import AUDITED, NEVER, RULES
    from tests.unit.spark.test_audit import PLANTS

    planted = {rule for rule, _ in PLANTS.values()} - {None} | PLANTED.keys()
    assert planted == RULES.keys()
    assert {rule.verdict for rule in RULES.values()} | NEVER.keys() == set(AUDITED)
    assert set(VERDICTS) < set(AUDITED)


def test_what_cannot_be_seen_is_named_and_not_called_clean() -> None:
    from dueline.spark.pipeline.tables_arrow import audit

    said = audit(all_lines())
    assert set(said.not_audited) == {
        "lost", "unexpected", "order", "crossed", "unexplained", "over capacity",
        "over attempts", "duplicate", "incomplete",
    }  # fmt: skip
    needs = " ".join(said.not_known.values())
    for word in ("have a row", "transactions", "clock", "results", "that a task allows"):
        assert word in needs
    assert not {one["verdict"] for one in said.findings} & {"lost", "unexpected"}


def test_spans_and_counts_are_what_people_mean_by_them() -> None:
    from dueline.spark.pipeline.tables_arrow import gold_lateness, gold_minute, silver

    lines = [
        attempt("a", 1, "crashed"),
        attempt("a", 2),
        attempt("b", 1, enqueued=BORN + 5 * SECOND),
    ]
    made = {(one["job_id"], one["attempt"]): one for one in silver(lines)}
    assert made["a", 1]["wait_us"] is None
    assert [made[key]["is_takeover"] for key in sorted(made)] == [False, True, False]
    assert made["b", 1]["lateness_us"] == 9 * SECOND + 1000
    assert made["b", 1]["wait_us"] == 5 * SECOND + 1000
    assert made["b", 1]["run_us"] == 9 * SECOND - 1000
    minutes = gold_minute(made.values())
    assert [(one["attempts"], one["done"], one["crashed"]) for one in minutes] == [(3, 2, 1)]
    assert minutes[0]["takeovers"] == 1
    assert {one["step"]: one["attempts"] for one in gold_lateness(made.values())} == {24: 1, 25: 1}


def plain(frame: Any) -> Counter[tuple[Any, ...]]:
    """Read a frame as rows without names, instants as microseconds, columns by name."""
    import pyarrow as pa

    table = frame.toArrow()
    rows: Counter[tuple[Any, ...]] = Counter()
    for place, field in enumerate(table.schema):
        if pa.types.is_timestamp(field.type):
            column = table.column(place).cast(pa.timestamp("us", "UTC")).cast(pa.int64())
            table = table.set_column(place, field.name, column)
    for row in table.to_pylist():
        rows[tuple(sorted(row.items()))] += 1
    return rows


def bare(lines: Any) -> Counter[tuple[Any, ...]]:
    """The same of plain rows."""
    return Counter(tuple(sorted(line.items())) for line in lines)


def test_spark_and_arrow_agree_to_the_row(spark: Any, shop: Dueline) -> None:
    import pyarrow as pa

    from dueline.spark import read
    from dueline.spark.pipeline import tables_arrow, tables_spark
    from dueline.spark.pipeline.audit_rules import Promises
    from dueline.spark.reading import schemas

    real = read(spark, shop.url, "attempts", queue="mail,bills").toArrow()
    kinds = {name: schemas.TYPES[kind] for name, kind in schemas.COLUMNS["attempts"].items()}
    planted = pa.Table.from_pylist(
        [{name: line[name] for name in kinds} for line in all_lines()], schema=pa.schema(kinds)
    )
    both = pa.concat_tables([real.cast(pa.schema(kinds)), planted])
    frame, lines = spark.createDataFrame(both), tables_arrow.lines_of(both)
    silver, silver_lines = tables_spark.silver(frame).cache(), tables_arrow.silver(lines)
    assert plain(silver) == bare(silver_lines)
    assert plain(tables_spark.gold_minute(silver)) == bare(tables_arrow.gold_minute(silver_lines))
    assert plain(tables_spark.gold_lateness(silver)) == bare(
        tables_arrow.gold_lateness(silver_lines)
    )

    jobs = {job.id.hex() for name in ("mail", "mail!dead", "bills", "bills!dead")
            for job in shop.queues.engine.jobs_of(name)}  # fmt: skip
    living = jobs | LIVING
    expected = ids(lines) | living | {GHOST} - {STRANGER}
    expected.remove(STRANGER)
    said = tables_spark.audit(
        frame,
        living=spark.createDataFrame([(one,) for one in living], "job_id string"),
        expected=spark.createDataFrame([(one,) for one in expected], "job_id string"),
        promises=Promises(CAPACITIES, PASSED),
    )
    oracle = tables_arrow.audit(
        lines, living=living, expected=expected, promises=Promises(CAPACITIES, PASSED)
    )
    assert plain(said.findings) == bare(oracle.findings)
    assert len(oracle.findings) == len(PLANTED)
    assert said[1:] == oracle[1:]


def test_the_history_of_real_workers_is_clean(spark: Any, shop: Dueline) -> None:
    from dueline.spark import read
    from dueline.spark.pipeline import tables_spark

    attempts = read(spark, shop.url, "attempts", queue="mail,bills")
    said = tables_spark.audit(attempts, living=read(spark, shop.url, "jobs", queue="mail,bills"))
    assert said.findings.collect() == []
    assert list(said.looked_for) == [
        "lost", "illegitimate", "stale", "finished twice", "early", "backwards",
        "inconsistent", "altered",
    ]  # fmt: skip
