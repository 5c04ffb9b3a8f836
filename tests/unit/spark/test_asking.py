"""What people on call ask of the tables, against a recount in plain Python (P6)."""

import json
from collections import Counter, defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("deltalake")

from dueline.core.clock import to_datetime
from dueline.spark.pipeline.asking import QUESTIONS, answer_to
from tests.harness.shell import Shell
from tests.harness.spark import oracle
from tests.harness.spark.lakes import Lake
from tests.harness.spark.tables import BORN, CLEAN, SECOND, Line, attempt

FAILED = ("retried", "dead", "crashed")
LINES = [
    *CLEAN,
    *(attempt(f"w {n}", 1, "retried", task="pay", error=f"TimeoutError: {n}") for n in range(5)),
    *(attempt(f"k {n}", 1, "dead", task="pay", error="KeyError: 'id'") for n in range(2)),
    *(attempt(f"p {n}", 1, task="pay", tenant="b", started=BORN + 80 * SECOND) for n in range(3)),
    attempt("other", 1, "crashed", queue="bills", task="pay"),
    attempt("early", 1, tenant="b", due=BORN + 99 * SECOND),
    attempt("old", 1, "dead", task="pay", ended=BORN - SECOND),
]  # fmt: skip


def recounted(since_us: int) -> dict[str, list[Line]]:
    """Answer the questions from all attempts of the oracle."""
    attempts = [row for row in oracle.silver(LINES) if row["ended"] >= since_us]
    started = [row for row in attempts if row["started"] is not None]
    tasks: dict[tuple[str, str], list[Line]] = defaultdict(list)
    tenants: dict[tuple[str, str], list[Line]] = defaultdict(list)
    spent: dict[tuple[str, str], list[Line]] = defaultdict(list)
    for row in attempts:
        tasks[row["queue"], row["task"]].append(row)
        if row["started"] is not None:
            tenants[row["queue"], row["tenant"]].append(row)
        if row["run_us"] is not None:
            spent[row["tenant"], row["task"]].append(row)
    return {
        "failures": [found for key, rows in tasks.items() for found in _failing(*key, rows)],
        "waiting": [
            _waiting(*key, rows, [row for row in started if row["queue"] == key[0]])
            for key, rows in tenants.items()
        ],
        "costs": [
            {"tenant": tenant, "task": task, "attempts": len(rows),
             "run_s": sum(row["run_us"] for row in rows) / 1e6,
             "failed_s": sum(row["run_us"] for row in rows if row["outcome"] in FAILED[:2]) / 1e6}
            for (tenant, task), rows in spent.items()
        ],
    }  # fmt: skip


def _failing(queue: str, task: str, rows: Sequence[Line]) -> list[Line]:
    failed = [row for row in rows if row["outcome"] in FAILED]
    if not failed:
        return []
    causes = Counter(row["fingerprint"] for row in failed)
    error, times = min(causes.items(), key=lambda cause: (-cause[1], cause[0] or ""))
    ends = Counter(row["outcome"] for row in failed)
    return [
        {"queue": queue, "task": task, "attempts": len(rows), "failed": len(failed),
         "share": len(failed) / len(rows), "dead": ends["dead"], "crashed": ends["crashed"],
         "last": max(row["ended"] for row in failed), "error": error, "times": times}
    ]  # fmt: skip


def _waiting(queue: str, tenant: str, rows: Sequence[Line], all_rows: Sequence[Line]) -> Line:
    late_us = sum(max(row["lateness_us"], 0) for row in rows)
    whole_us = sum(max(row["lateness_us"], 0) for row in all_rows)
    return {
        "queue": queue, "tenant": tenant, "started": len(rows), "mean_s": late_us / len(rows) / 1e6,
        "longest_s": max(row["lateness_us"] for row in rows) / 1e6,
        "over_1s": sum(row["lateness_us"] >= SECOND for row in rows),
        "over_1min": sum(row["lateness_us"] >= 60 * SECOND for row in rows),
        "share": late_us / whole_us if whole_us else 0.0,
    }  # fmt: skip


def bare(lines: Sequence[Line]) -> Counter[Any]:
    """Return lines without an order."""
    return Counter(tuple(sorted(line.items(), key=str)) for line in lines)


@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize("since_us", [0, BORN])
def test_an_answer_is_that_of_a_recount(tmp_path: Path, question: str, since_us: int) -> None:
    lake = Lake(tmp_path)
    lake.add(LINES)
    lake.run()
    lines = answer_to(
        QUESTIONS[question], lake.small.queries, lake.table("silver").view(),
        since_us=since_us, until_us=2**62,
    )  # fmt: skip
    assert bare(lines) == bare(recounted(since_us)[question])
    first = QUESTIONS[question].worst[0]
    assert [line[first] for line in lines] == sorted((line[first] for line in lines), reverse=True)


def test_spark_answers_the_same_by_views(spark: Any, tmp_path: Path) -> None:
    from dueline.spark import register

    lake = Lake(tmp_path)
    lake.add(LINES)
    lake.run()
    names = register(spark, lake=tmp_path, prefix="asked_")
    for name, question in QUESTIONS.items():
        rows = [row.asDict() for row in spark.table(f"asked_{question.text}").collect()]
        for row in rows:
            if "last" in row:
                row["last"] = round(
                    (row["last"].astimezone(UTC) - to_datetime(0)) / timedelta(microseconds=1)
                )
        assert bare(rows) == bare(recounted(0)[name])
    for name in names:
        spark.catalog.dropTempView(name)


def test_the_command_shows_the_worst_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    shell = Shell(tmp_path, capsys)
    lake = Lake(tmp_path / "lake")
    lake.add(LINES)
    lake.run()
    since = datetime.fromtimestamp(BORN / 1e6, UTC).isoformat()
    answer = shell("pipeline", "ask", "failures", "--since", since, "--limit", "1", "-o", "json")
    (worst,) = json.loads(answer.out)["data"]
    assert (worst["task"], worst["error"]) == ("pay", "TimeoutError: #")
    refused = shell("pipeline", "ask", "costs", "--since", "1h", "--until", since)
    assert (refused.code, "before --until" in refused.err) == (2, True)
