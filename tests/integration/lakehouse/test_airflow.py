"""Tables as tasks of Airflow 3, run by Airflow itself (P14)."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness.markdown import ROOT
from tests.integration.lakehouse.shop import filled, lose_a_job

pytest.importorskip("airflow", reason="Airflow is not installed (requirements/lakehouse.txt)")

DAG = """
import os
from datetime import datetime, timedelta

from airflow.sdk import DAG

from dueline.spark.airflow import UpdateTables

with DAG("shop", schedule=None, start_date=datetime(2026, 1, 1)) as dag:
    UpdateTables(
        task_id="tables", store="{{ params.store }}", lake=os.environ["LAKE"], retries=2,
        retry_delay=timedelta(seconds=0), params={"store": os.environ["STORE"]},
    )

if __name__ == "__main__":
    run = dag.test()
    task = run.get_task_instance("tables")
    print("RUN", run.state, task.try_number)
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make Airflow's folder, with its database."""
    folder = tmp_path_factory.mktemp("airflow")
    subprocess.run(
        [sys.executable, "-m", "airflow", "db", "migrate"], env=variables(folder), check=True,
        capture_output=True,
    )  # fmt: skip
    return folder


def variables(home: Path) -> dict[str, str]:
    """Return the environment of a process of Airflow."""
    return {
        **os.environ, "AIRFLOW_HOME": str(home), "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "PYTHONPATH": str(ROOT),
    }  # fmt: skip


def ran(home: Path, folder: Path, store: str, lake: str = "lake") -> tuple[str, str]:
    """Run the DAG in a folder; return its last state, and all that it said."""
    (folder / "shop_dag.py").write_text(DAG)
    done = subprocess.run(
        [sys.executable, "shop_dag.py"], cwd=folder, text=True, capture_output=True, check=False,
        env={**variables(home), "AIRFLOW__CORE__DAGS_FOLDER": str(folder), "STORE": store,
             "LAKE": lake},
    )  # fmt: skip
    said = done.stdout + done.stderr
    lines = [line for line in said.splitlines() if line.startswith("RUN ")]
    assert lines, said
    return lines[-1], said


@pytest.mark.long
def test_a_run_updates_the_tables_and_a_failed_audit_fails_its_task_at_once(
    home: Path, tmp_path: Path
) -> None:
    app = filled(tmp_path)
    state, said = ran(home, tmp_path, app.url)
    assert state == "RUN success 1"
    assert "bronze:" in said  # the progress is in the log
    assert (tmp_path / "lake" / "silver" / "_delta_log").is_dir()
    lose_a_job(app)
    state, said = ran(home, tmp_path, app.url)
    assert state == "RUN failed 1"
    assert "'mail': 'failed'" in said


@pytest.mark.long
@pytest.mark.parametrize(
    ("store", "lake", "tries"),
    [("sqlite:///nothing.db", "lake", 1), ("sqlite:///jobs.db", "blocked/lake", 3)],
)
def test_only_what_may_pass_is_repeated(
    home: Path, tmp_path: Path, store: str, lake: str, tries: int
) -> None:
    filled(tmp_path).close()
    (tmp_path / "blocked").write_text("a file in the way")
    state, _ = ran(home, tmp_path, store, lake)
    assert state == f"RUN failed {tries}"
