"""The short run of kills among transactions that append events (T12)."""

from pathlib import Path

import pytest

from tests.harness.postgres import expect_server

expect_server()

from tests.kills.appends import Appends  # noqa: E402
from tests.kills.cluster import struck_cluster  # noqa: E402

pytestmark = pytest.mark.postgres


def test_each_event_is_read_once_and_in_order_despite_kills(tmp_path: Path) -> None:
    with struck_cluster(tmp_path / "server", 1) as cluster:
        report = Appends(tmp_path, cluster, seed=1).run(kills=8, strikes=2)
    assert report.faults == []
    assert report.events > 0
