"""What people on call ask of the tables, against a recount in plain Python (P6)."""

import json
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("deltalake")

from dueline.core.clock import to_datetime
from dueline.spark.pipeline.asking import QUESTIONS, answer_to
from tests.harness.shell import Shell
from tests.harness.spark.asking_oracle import recounted
from tests.harness.spark.lakes import Lake
from tests.harness.spark.tables import BORN, CLEAN, SECOND, Line, attempt

LINES = [
    *CLEAN,
    *(attempt(f"w {n}", 1, "retried", task="pay", error=f"TimeoutError: {n}") for n in range(5)),
    *(attempt(f"k {n}", 1, "dead", task="pay", error="KeyError: 'id'") for n in range(2)),
    *(attempt(f"p {n}", 1, task="pay", tenant="b", started=BORN + 80 * SECOND) for n in range(3)),
    attempt("other", 1, "crashed", queue="bills", task="pay"),
    attempt("early", 1, tenant="b", due=BORN + 99 * SECOND),
    attempt("old", 1, "dead", task="pay", ended=BORN - SECOND),
]  # fmt: skip


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
    assert bare(lines) == bare(recounted(LINES, since_us)[question])
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
        assert bare(rows) == bare(recounted(LINES)[name])
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
