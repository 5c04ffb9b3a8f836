"""The short loop."""

from pathlib import Path

from tests.kills.loop import Loop

KILLS, PAUSES, JOBS = 8, 4, 2000


def test_no_job_is_lost_doubled_or_early_when_processes_are_killed(tmp_path: Path) -> None:
    report = Loop(tmp_path, jobs=JOBS, kills=KILLS, pauses=PAUSES, seed=1).run()
    assert {verdict: found for verdict, found in report.faults.items() if found} == {}
    assert report.counts["kills"] == KILLS
    assert report.counts["pauses"] == PAUSES
    assert JOBS * 0.8 < report.counts["attempted"] <= JOBS
    assert report.counts["cancelled"] > 0, "no job with a unique key was replaced"
