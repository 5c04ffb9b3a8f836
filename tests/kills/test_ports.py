"""The short run of DBOS's examples under kills."""

from pathlib import Path

import pytest

from tests.harness.peers import needs_peers
from tests.kills.ports import BATCHES, RECORDS, Ports

KILLS = 4


@pytest.mark.parametrize("side", ["dueline", pytest.param("DBOS", marks=needs_peers)])
def test_each_step_has_its_effect_once_for_each_record_despite_kills(
    side: str, tmp_path: Path
) -> None:
    report = Ports(side, tmp_path, kills=KILLS, seed=1).run()
    assert report.faults == []
    assert report.kills == KILLS
    assert report.records == 4 * RECORDS + BATCHES + RECORDS // 2  # reviews are functions, too
