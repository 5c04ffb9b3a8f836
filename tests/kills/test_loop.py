"""The short loop."""

from pathlib import Path

from tests.kills.loop import Loop

KILLS, JOBS = 8, 2000


def test_no_job_is_lost_doubled_or_early_when_processes_are_killed(tmp_path: Path) -> None:
    report = Loop(tmp_path, jobs=JOBS, kills=KILLS, seed=1).run()
    assert {verdict: found for verdict, found in report.faults.items() if found} == {}
    assert report.counts["kills"] == KILLS
    assert report.counts["attempted"] == JOBS
