"""Tables as assets of Dagster, materialized by Dagster itself (P14)."""

from pathlib import Path

import pytest

from tests.integration.lakehouse.shop import filled, lose_a_job

dagster = pytest.importorskip(
    "dagster", reason="Dagster is not installed (requirements/lakehouse.txt)"
)

from dueline.spark.dagster import table_assets


def test_assets_are_materialized_and_a_failed_audit_fails_the_run(tmp_path: Path) -> None:
    app = filled(tmp_path)
    assets = table_assets(app.url, str(tmp_path / "lake"), group_name="queues")
    assert dagster.Definitions(assets=[assets])
    done = dagster.materialize([assets])
    assert done.success
    counts = {
        made.asset_key.path[-1]: made.metadata["dagster/partition_row_count"].value
        for made in done.asset_materializations_for_node("dueline_tables")
    }
    assert counts == {"bronze": 81 + 88, "silver": 88, "gold": counts["gold"]}
    (check,) = done.get_asset_check_evaluations()
    assert (check.passed, check.check_name) == (True, "audit")
    verdicts = check.metadata["queues"].value
    assert (verdicts["mail"], verdicts["quiet"]) == ("clean", "not audited")
    lose_a_job(app)
    policy = dagster.RetryPolicy(max_retries=3)
    again = table_assets(app.url, str(tmp_path / "lake"), retry_policy=policy)
    failed = dagster.materialize([again], raise_on_error=False)
    assert not failed.success
    (check,) = failed.get_asset_check_evaluations()
    assert (check.passed, check.metadata["findings"].value) == (False, 1)
    assert not [event for event in failed.all_events if "RETRY" in event.event_type_value]


def test_a_missing_store_fails_the_run_without_a_repetition(tmp_path: Path) -> None:
    policy = dagster.RetryPolicy(max_retries=3)
    assets = table_assets(f"sqlite:///{tmp_path}/none.db", str(tmp_path), retry_policy=policy)
    failed = dagster.materialize([assets], raise_on_error=False)
    assert not failed.success
    assert not [event for event in failed.all_events if "RETRY" in event.event_type_value]
