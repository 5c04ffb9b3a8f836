"""The short run of kills among jobs that need labels and units of their worker (O14, O15)."""

from pathlib import Path
from typing import Any

from tests.kills.costs import Hold
from tests.kills.needs import GPUS, Needs, faults_of

KILLS = 3


def test_no_worker_is_over_what_it_has_despite_kills(tmp_path: Path) -> None:
    report: Any = Needs(tmp_path, kills=KILLS, seed=1).run()
    assert report.faults == []
    assert report.kills == KILLS
    assert report.starts >= report.jobs > 0
    assert report.peaks[-1] == GPUS  # all units are used, at times


def test_what_must_not_be_is_noticed() -> None:
    holds = [Hold("a", {"gpu": 2}, 10, 20), Hold("b", {"gpu": 2, "side": 0}, 15, 30)]
    ends = {"a": ["done"], "b": ["done"]}
    assert list(faults_of(["a", "b"], {7: holds[:1], 8: holds[1:]}, {8: "a"}, ends)) == []
    assert list(faults_of(["a", "b"], {7: holds}, {7: "b"}, {"a": ["done"]})) == [
        "7 used 4 units at once, of 3", "7 ran b, which it does not fit", "b has ended 0 times",
    ]  # fmt: skip
