"""The short run of kills among jobs of a task that pauses itself (R18)."""

from pathlib import Path
from typing import Any

from tests.kills.circuits import Circuits, faults_of

KILLS = 2


def test_a_task_pauses_itself_and_resumes_despite_kills(tmp_path: Path) -> None:
    report: Any = Circuits(tmp_path, kills=KILLS, seed=2).run()
    assert report.faults == []
    assert report.kills == KILLS
    assert report.attempts["done"] == report.jobs > 0


def test_what_must_not_be_is_noticed() -> None:
    probes = [(7, 1_000_000), (7, 2_000_000), (8, 2_000_001)]
    assert list(faults_of(["a"], probes, {"a": ["done"]})) == []
    assert list(faults_of(["a"], [(7, 1_000_000), (7, 1_999_999)], {})) == [
        "two probes start within 999999 µs", "a has ended 0 times",
    ]  # fmt: skip
