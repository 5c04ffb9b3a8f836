"""What else should hold: how many at once, and who before whom (P11)."""

import json
import time
from pathlib import Path

import pytest

from dueline import Dueline
from tests.harness.spark.audits import audit
from tests.harness.spark.tables import BORN, SECOND, Line, attempt


def crowded(rows: list[Line], capacities: dict[str, int]) -> list[str]:
    """Name the jobs that started while too many ran."""
    from dueline.jobs.audit_rules import Promises

    said = audit(rows, promises=Promises(capacities))
    return sorted(one["job_id"] for one in said.findings if one["verdict"] == "over capacity")


def passed_by(rows: list[Line], most: int) -> list[str]:
    """Name the jobs that others overtook."""
    from dueline.jobs.audit_rules import Promises

    said = audit(rows, promises=Promises(passed=most))
    return sorted(one["job_id"] for one in said.findings if one["verdict"] == "order")


def test_what_crashed_or_is_over_by_then_is_no_crowd() -> None:
    begun, next_one = BORN + 10 * SECOND + 1000, BORN + 19 * SECOND - 1000
    some = [
        attempt("a", 1),
        attempt("b", 1, "crashed", started=begun, ended=BORN + 90 * SECOND),
        attempt("c", 1, started=next_one, ended=BORN + 30 * SECOND),
        attempt("d", 1, task="other"),
    ]
    assert crowded(some, {"send": 1}) == []
    some.append(attempt("e", 1, started=next_one - 1, ended=BORN + 30 * SECOND))
    assert crowded(some, {"send": 1}) == ["c", "e"]
    assert crowded(some, {"send": 3, "other": 1}) == []


def test_who_was_moved_or_not_ready_for_a_second_is_not_passed_by() -> None:
    others = [attempt(f"o{place}", 1, claimed=BORN + place * SECOND) for place in range(2, 6)]
    late = attempt("late", 1, priority=1, claimed=BORN + 6 * SECOND)
    assert passed_by([*others, late], 2) == ["late"]
    assert passed_by([*others, late], 3) == []
    moved = {**late, "id": "moved", "worker": "", "outcome": "changed"}
    assert passed_by([*others, late, moved], 0) == []
    assert passed_by([*others, {**late, "attempt": 2}], 0) == []
    assert passed_by([*others, {**late, "tenant": "zeta"}], 0) == []


def test_an_audit_finds_more_at_once_than_may(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from dueline.cli import run

    app = Dueline(f"sqlite:///{tmp_path / 'jobs.db'}?synchronous=NORMAL")
    app.semaphore("press", capacity=2)
    app.queue("print", history="all")

    @app.task(name="print", queue="print", limits=["press"])
    def print_(page: int) -> None:
        time.sleep(0.02)

    for page in range(12):
        print_.using(priority=page % 3).enqueue(page)
    app.run_worker(burst=True, concurrency=6)
    words = ["--store", app.url, "-o", "json", "pipeline", "audit", "--engine", "duckdb"]
    words += ["--out", str(tmp_path / "lake"), "--order", "0", "--capacity"]
    assert run([*words, "print=2"]) == 0
    said = json.loads(capsys.readouterr().out)["data"]
    assert {one["queue"]: one["verdict"] for one in said["queues"]}["print"] == "clean"
    assert {"over capacity", "order"} <= set(said["looked_for"])
    assert run([*words, "print=1"]) == 6
    said = json.loads(capsys.readouterr().out)["data"]
    assert {one["verdict"] for one in said["findings"]} == {"over capacity"}
    assert run([*words, "print=none"]) == 2
