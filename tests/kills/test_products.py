"""The short run of kills among products (C10)."""

from pathlib import Path

from tests.kills.products import Products

KILLS = 8


def test_each_product_exists_once_despite_kills(tmp_path: Path) -> None:
    report = Products(tmp_path, kills=KILLS, seed=1).run()
    assert report.faults == []
    assert sum(report.stages.values()) == KILLS
    assert sum(report.states.values()) == report.jobs > KILLS
    assert report.states["done"] > report.jobs * 0.9
