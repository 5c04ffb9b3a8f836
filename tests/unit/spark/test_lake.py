"""Tables made of a history, by two engines that agree to the row (P11)."""

from pathlib import Path
from typing import Any

import pytest

from dueline import Dueline
from tests.harness.spark.audits import audit
from tests.harness.spark.function_violations import PLANTS as PLANTS_OF_FUNCTIONS
from tests.harness.spark.lakes import Lake
from tests.harness.spark.tables import (
    BORN,
    CLEAN,
    LIVING,
    PLANTED,
    SECOND,
    Line,
    all_lines,
    attempt,
    bare,
    rows_in,
)
from tests.harness.spark.violations import PLANTS

GHOST = "j"
CAPACITIES, PASSED = {"narrow": 1}, 1
STRANGER = "k"


def ids(lines: list[Line]) -> set[str]:
    """Name the jobs of attempts."""
    return {line["job_id"] for line in lines}


def test_a_clean_history_is_clean() -> None:
    from dueline.jobs.audit_rules import Promises

    promises = Promises({"send": len(CLEAN)}, PASSED)
    said = audit(CLEAN, living=LIVING, expected=ids(CLEAN) | {"new"}, promises=promises)
    assert said.findings == []
    assert set(said.not_audited) == {"crossed", "repeated", "unexplained", "duplicate",
                                     "incomplete", "over attempts"}  # fmt: skip


@pytest.mark.parametrize("rule", PLANTED)
def test_each_planted_fault_is_found_and_nothing_else(rule: str) -> None:
    from dueline.jobs.audit_rules import RULES, Promises

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
    from dueline.jobs.audit_rules import AUDITED, NEVER, RULES

    planted = {rule for rule, _ in PLANTS.values()} - {None} | PLANTED.keys()
    assert planted | set(PLANTS_OF_FUNCTIONS.values()) == RULES.keys()
    assert {rule.verdict for rule in RULES.values()} | NEVER.keys() == set(AUDITED)
    assert set(VERDICTS) < set(AUDITED)


def test_what_cannot_be_seen_is_named_and_not_called_clean() -> None:

    said = audit(all_lines())
    assert set(said.not_audited) == {
        "lost", "unexpected", "order", "crossed", "repeated", "unexplained", "over capacity",
        "over attempts", "duplicate", "incomplete",
    }  # fmt: skip
    needs = " ".join(said.not_known.values())
    for word in ("have a row", "transactions", "clock", "results", "that a task allows"):
        assert word in needs
    assert not {one["verdict"] for one in said.findings} & {"lost", "unexpected"}


def test_spans_and_counts_are_what_people_mean_by_them(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.add([
        attempt("a", 1, "crashed"),
        attempt("a", 2),
        attempt("b", 1, enqueued=BORN + 5 * SECOND),
    ])  # fmt: skip
    lake.run()
    found = [dict(one) for one in rows_in(tmp_path, "silver")]
    made = {(one["job_id"], one["attempt"]): one for one in found}
    assert made["a", 1]["wait_us"] is None
    assert [made[key]["is_takeover"] for key in sorted(made)] == [False, True, False]
    assert made["b", 1]["lateness_us"] == 9 * SECOND + 1000
    assert made["b", 1]["wait_us"] == 5 * SECOND + 1000
    assert made["b", 1]["run_us"] == 9 * SECOND - 1000
    minutes = [dict(one) for one in rows_in(tmp_path, "gold_minute")]
    assert [(one["attempts"], one["done"], one["crashed"]) for one in minutes] == [(3, 2, 1)]
    assert minutes[0]["takeovers"] == 1
    steps = [dict(one) for one in rows_in(tmp_path, "gold_lateness")]
    assert {one["step"]: one["attempts"] for one in steps} == {24: 1, 25: 1}


@pytest.mark.long
def test_both_engines_audit_alike(spark: Any, shop: Dueline) -> None:
    import pyarrow as pa

    from dueline.jobs.audit_rules import Promises
    from dueline.spark import read
    from dueline.spark.pipeline.queries import Spark, lines_in
    from dueline.spark.reading import schemas

    real = read(spark, shop.url, "attempts", queue="mail,bills").toArrow()
    kinds = {name: schemas.TYPES[kind] for name, kind in schemas.COLUMNS["attempts"].items()}
    planted = pa.Table.from_pylist(
        [{name: line[name] for name in kinds} for line in all_lines()], schema=pa.schema(kinds)
    )
    lines: list[Line] = list(lines_in(pa.concat_tables([real.cast(pa.schema(kinds)), planted])))
    jobs = {job.id.hex() for name in ("mail", "mail!dead", "bills", "bills!dead")
            for job in shop.queues.engine.jobs_of(name)}  # fmt: skip
    living = jobs | LIVING
    expected = ids(lines) | living | {GHOST} - {STRANGER}
    expected.remove(STRANGER)
    named: dict[str, Any] = {
        "living": living, "expected": expected, "promises": Promises(CAPACITIES, PASSED)
    }  # fmt: skip
    said = audit(lines, Spark(spark), **named)
    assert len(said.findings) == len(PLANTED)
    assert bare(audit(lines, **named).findings) == bare(said.findings)


@pytest.mark.long
def test_the_history_of_real_workers_is_clean(spark: Any, shop: Dueline) -> None:
    from dueline.spark import read
    from dueline.spark.pipeline import audit_queries
    from dueline.spark.pipeline.queries import Spark

    attempts = read(spark, shop.url, "attempts", queue="mail,bills")
    living = read(spark, shop.url, "jobs", queue="mail,bills")
    said = audit_queries.audit(Spark(spark), attempts, living=living)
    assert said.findings == []
    assert list(said.looked_for) == [
        "lost", "illegitimate", "stale", "finished twice", "early", "backwards",
        "inconsistent", "altered",
    ]  # fmt: skip
