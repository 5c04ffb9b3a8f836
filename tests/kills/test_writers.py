"""The short crowd."""

from pathlib import Path

from tests.kills.writers import WRITERS, crowd

SECONDS = 2.0
SLOWEST_S_MAX = 30.0  # a call gives up after 60


def test_sixteen_writers_see_no_busy_store_and_lose_nothing(tmp_path: Path) -> None:
    report = crowd(tmp_path, seconds=SECONDS)
    assert report.errors == []
    assert report.calls > WRITERS
    assert set(report.states) <= {"done", "ready", "scheduled"}
    assert set(report.states_of_cancelled) <= {"cancelled"}
    assert report.slowest_s < SLOWEST_S_MAX
