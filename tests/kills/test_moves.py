"""The short run of kills of movers (H16, H18)."""

from pathlib import Path

import pytest

from tests.kills.moves import PLANTED, Moves


@pytest.mark.sqlite
def test_a_move_is_proven_despite_kills(tmp_path: Path) -> None:
    report = Moves(tmp_path, kills=1, seed=1).run()
    assert report.faults == []
    assert report.jobs > 0
    assert set(report.planted) == {plant.__name__ for plant in PLANTED}
    assert all(report.planted.values())
