"""The short run of DBOS's examples under kills."""

from pathlib import Path

import pytest

from tests.harness.peers import needs_peers
from tests.kills.ports import BATCHES, RECORDS, Ports, Report

KILLS = 4


@pytest.mark.parametrize("side", ["dueline", pytest.param("DBOS", marks=needs_peers)])
def test_each_step_has_its_effect_once_for_each_record_despite_kills(
    side: str, tmp_path: Path
) -> None:
    report = Ports(side, tmp_path, kills=KILLS, seed=1).run()
    assert report.faults == []
    assert report.kills == KILLS
    assert report.records == 4 * RECORDS + BATCHES + RECORDS // 2  # reviews are functions, too


def test_what_must_not_be_is_noticed(tmp_path: Path) -> None:
    run = Ports("dueline", tmp_path, kills=0, seed=1)
    with (tmp_path / "effects").open("w") as effects:
        for line in ("a-1 plan", "a-1 execute", "a-0 plan", "t-0 search-0"):
            effects.writelines(f"{word} {line} 7 100\n" for word in ("begins", "ends"))

    def faults(more: str = "", **results: object) -> list[str]:
        kept = (tmp_path / "effects").read_text()
        (tmp_path / "effects").write_text(kept + more)
        report: Report = run.judge(
            {"a-1": ("done", ""), "a-0": ("failed", None)}
            | {name.replace("_", "-"): end for name, end in results.items()}  # type: ignore[arg-type]
        )
        (tmp_path / "effects").write_text(kept)
        return report.faults

    (lost,) = faults()
    assert lost.startswith("t-0 did ['search-0'], not ['comments-0-0'")
    assert any("began in [100, 101]" in fault for fault in faults("begins a-1 plan 8 101\n"))
    assert any("a-0 did ['execute'" in fault for fault in faults("begins a-0 execute 8 100\n"))
    assert "a-1 is failed: None" in faults(a_1=("failed", None))
    assert any("which no step did" in fault for fault in faults(t_0=("done", [9])))
    assert any("1 paid" in fault for fault in faults(c_0=("done", "paid")))
