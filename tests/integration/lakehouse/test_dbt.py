"""A dbt project over the tables, built and tested by dbt itself (P14)."""

import os
import subprocess
import sys
from pathlib import Path
from shutil import copytree

import pytest

from tests.harness.markdown import ROOT
from tests.integration.lakehouse.shop import filled

pytest.importorskip(
    "dbt.adapters.duckdb", reason="dbt is not installed (requirements/lakehouse.txt)"
)


def build(project: Path, lake: Path) -> subprocess.CompletedProcess[str]:
    """Run `dbt build`."""
    variables = {**os.environ, "DUELINE_LAKE": str(lake), "DO_NOT_TRACK": "1"}
    dbt = str(Path(sys.executable).with_name("dbt"))
    words = [dbt, "build", "--profiles-dir", "."]
    return subprocess.run(
        words, cwd=project, env=variables, text=True, capture_output=True, check=False
    )


@pytest.mark.long
def test_models_are_built_from_gold_and_their_tests_notice_a_wrong_table(tmp_path: Path) -> None:
    import duckdb

    from dueline.spark import update_tables
    from dueline.spark.pipeline.delta import place_of
    from dueline.spark.pipeline.tables import open_table

    app, lake = filled(tmp_path), tmp_path / "lake"
    update_tables(app.url, str(lake))
    project = tmp_path / "project"
    copytree(ROOT / "examples" / "dbt_lake", project)
    done = build(project, lake)
    assert (done.returncode, "ERROR=0" in done.stdout) == (0, True), done.stdout
    with duckdb.connect(str(project / "dueline.duckdb"), read_only=True) as made:
        days = made.sql("SELECT tenant, attempts, done, dead FROM queue_days ORDER BY 1").fetchall()
        health = made.sql("SELECT queue, started, worst_error, worst_dead FROM queue_health")
        assert days == [("acme", 66, 54, 6), ("zeta", 22, 18, 2)]
        assert health.fetchall() == [("mail", 88, "TimeoutError: server # is silent", 8)]
    gold = open_table(place_of(str(lake)), "gold_minute")
    rows = gold.view().dataset().to_table()
    place = rows.schema.get_field_index("attempts")
    wrong = rows.set_column(
        place, "attempts", [[count + 1 for count in rows["attempts"].to_pylist()]]
    )
    gold.commit(gold.writer.write(wrong), gold.files())
    done = build(project, lake)
    assert done.returncode == 1
    assert "attempts_are_counted_once" in done.stdout
