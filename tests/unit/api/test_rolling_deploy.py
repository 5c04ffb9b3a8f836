"""Two versions of an application on one store, of which one has a new task."""

from pathlib import Path

from tests.harness.cases.rolling_deploy import two_versions_share_a_store


def test_a_new_task_waits_for_a_worker_that_knows_it(tmp_path: Path) -> None:
    two_versions_share_a_store(f"sqlite:///{tmp_path}/jobs.db")
