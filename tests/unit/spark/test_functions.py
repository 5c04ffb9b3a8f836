"""Durable functions in a history of all events: their records, and rules of the audit (P11)."""

import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dueline.durable.log import Head, described
from tests.harness.shell import Shell
from tests.harness.spark.audits import columns_of
from tests.harness.spark.function_violations import (
    PLANTS,
    Past,
    child_twice,
    not_undone,
    twice,
    words_of,
)
from tests.harness.spark.tables import made, quiet, rows_in
from tests.kills.durable import QUEUE, Durables, app_in


@pytest.fixture(scope="session")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Past:
    """Run sagas whose workers are killed and stalled; read their history."""
    folder = tmp_path_factory.mktemp("functions")
    os.environ["DURABLE_HISTORY"] = "all"
    report = Durables(folder, kills=5, stalls=1, seed=1).run()
    assert report.faults == []
    app = app_in(folder)
    made(folder / "lake", app).run(["bronze"], quiet)
    rows = [dict(row) for row in rows_in(folder / "lake", "bronze")]
    return Past(app, folder, rows)


@pytest.fixture
def past(killed: Past) -> Past:
    return Past(killed.app, killed.folder, [dict(row) for row in killed.rows])


def test_each_record_has_a_row(past: Past) -> None:
    job_id = past.ended("dead")["job_id"]
    own = [row for row in past.rows if row["job_id"] == job_id and row["outcome"] == "recorded"]
    kinds = Counter(words_of(row)["kind"] for row in own)
    steps = past.app.job(job_id).steps()
    assert kinds["step"] == sum(step.kind == "step" for step in steps) == 4
    assert (kinds["undo"], kinds["end"], kinds["gather"], kinds["sleep"]) == (2, 1, 1, 1)
    assert {row["worker"] for row in own} == {""}
    named = {words_of(row)["name"] for row in own if words_of(row)["kind"] == "step"}
    assert named == {f"step {number}" for number in range(4)}


def findings(past: Past, queries: Any, *, is_exact: bool = True) -> set[str]:
    from dueline.jobs.audit_rules import Known
    from dueline.spark.pipeline.audit_queries import violations

    known = Known((QUEUE,), is_exact=is_exact, now_us=past.app.store.clock_us())
    found = violations(queries, columns_of(past.rows), known=known)
    return {line["rule"] for line in found}


def test_functions_whose_workers_were_killed_break_no_rule(past: Past) -> None:
    from dueline.spark.pipeline.queries import Duck

    assert findings(past, Duck()) == set()
    judged = made(past.folder / "lake", past.app).audit(quiet)
    assert [(one.queue, one.verdict) for one in judged.queues] == [(QUEUE, "clean")]


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.__name__)
def test_each_planted_violation_is_named(past: Past, plant: Callable[[Past], None]) -> None:
    from dueline.spark.pipeline.queries import Duck

    plant(past)
    assert findings(past, Duck()) == {PLANTS[plant]}


def test_rules_on_what_is_missing_need_a_complete_history(past: Past) -> None:
    from dueline.spark.pipeline.queries import Duck

    not_undone(past)
    assert findings(past, Duck(), is_exact=False) == set()


def test_spark_finds_the_same(past: Past, spark: Any) -> None:
    from dueline.spark.pipeline.queries import Spark

    assert findings(past, Spark(spark)) == set()
    for plant in (twice, child_twice, not_undone):
        plant(past)
    assert findings(past, Spark(spark)) == {"position twice", "child twice", "not undone"}


def test_the_records_are_a_view(past: Past, spark: Any) -> None:
    from dueline.spark import register

    job_id = past.ended("dead")["job_id"]
    for source in ({"lake": past.folder / "lake"}, {"store": past.app.url}):
        names = register(spark, prefix="f_", **source)
        columns = ("kind", "position", "name", "state", "registers_undo")
        assert {row.kind for row in spark.table("f_steps").where("run_us >= 0").collect()} == {
            "step", "undo",
        }  # fmt: skip
        records = spark.table("f_steps").where(f"job_id = '{job_id}'")
        records = records.where("kind IN ('step', 'undo', 'end')").orderBy("recorded", "position")
        found = records.select(*columns).collect()
        assert [tuple(row) for row in found if row.kind == "step"] == [
            ("step", "1", "step 0", "done", True), ("step", "3", "step 1", "done", False),
            ("step", "6", "step 2", "done", True), ("step", "7", "step 3", "done", False),
        ]  # fmt: skip
        assert [row.kind for row in found][-3:] == ["end", "undo", "undo"]
        for name in names:
            spark.catalog.dropTempView(name)


def test_a_simulation_says_what_it_cannot_know(
    past: Past, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shell = Shell(tmp_path, capsys)
    words = ("--store", past.app.url, "--out", str(past.folder / "lake"))
    known = "Durable functions (part, saga) run as often, and wait as long, as they really did"
    simulated = shell("pipeline", "what-if", *words, "--workers", "4")
    assert known in simulated.err
    planned = shell("pipeline", "plan", *words, "--target", "p50<1h")
    assert known in planned.err
    assert known in shell("-o", "json", "pipeline", "what-if", *words).data["not_known"]


def test_what_the_history_says_of_a_record() -> None:
    assert described(2, "00005/00002", Head("step", "two words", undo=True)) == (
        "2 5.2 step done undo - two words"
    )
    assert described(0, "undo/00001", Head("undo", "pay", "failed")) == "0 1 undo failed - - pay"
    assert described(0, "00003", Head("call", "ship", source="ab")) == "0 3 call done - ab ship"
    assert described(0, "00003!wait", Head("wait", "go")) == "0 3!wait wait done - - go"
    assert described(0, "end", Head("end", state="failed")) == "0 - end failed - -"
