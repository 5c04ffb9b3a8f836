"""A project of Spark Declarative Pipelines, made and run."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("deltalake")

import pyarrow.dataset

from dueline import Conflict, Dueline
from tests.harness.spark.environment import TIMEOUT_S

CATALOG = ["spark.sql.catalogImplementation=hive"]


def test_a_project_holds_no_password_and_is_not_overwritten(tmp_path: Path) -> None:
    from dueline.spark.pipeline.declarative import make_project

    made = make_project(tmp_path / "shop", "cassandra://me:s3cret@127.0.0.1/shop")
    assert [path.name for path in made] == ["spark-pipeline.yml", "history.py", "minutes.sql"]
    assert not any("s3cret" in path.read_text() for path in made)
    with pytest.raises(Conflict, match="holds a project already"):
        make_project(tmp_path / "shop", "sqlite:///jobs.db")
    (_, history, _) = make_project(tmp_path / "other", "sqlite:///jobs.db")
    assert f'"sqlite:///{Path.cwd()}/jobs.db"' in history.read_text()
    compile(history.read_text(), str(history), "exec")


def test_the_project_counts_outcomes_that_a_history_has(tmp_path: Path) -> None:
    from dueline.spark.pipeline.declarative import make_project
    from dueline.spark.pipeline.tables import SUMS

    (_, _, minutes) = make_project(tmp_path / "shop", "sqlite:///jobs.db")
    named = set(re.findall(r"outcome = '(\w+)'", minutes.read_text()))
    assert named == {"done", "retried", "dead"} <= set(SUMS["gold_minute"].counts)


@pytest.mark.long
def test_the_project_runs_again_and_again(tmp_path: Path) -> None:
    import pyspark

    app = Dueline(f"sqlite:///{tmp_path / 'jobs.db'}")

    @app.task(name="note", queue="mail")
    def note(number: int) -> None:
        assert number >= 0

    project = tmp_path / "shop"
    command = [sys.executable, "-m", "dueline", "--store", app.url]
    command += ["pipeline", "init", str(project), "--sdp"]
    note.enqueue_many([(number,) for number in range(30)])
    app.run_worker(burst=True)
    subprocess.run(command, check=True)
    home = Path(pyspark.__file__).parent
    env = os.environ | {"SPARK_HOME": str(home), "PYSPARK_PYTHON": sys.executable}

    def run() -> int:
        """Run the project; return the number of attempts in its table."""
        ran = subprocess.run(
            [str(home / "bin" / "spark-pipelines"), "run", "--conf", *CATALOG],
            cwd=project, env=env, capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
        )  # fmt: skip
        assert ran.returncode == 0, ran.stdout[-3000:] + ran.stderr[-3000:]
        warehouse = project / "spark-warehouse"
        (row,) = pyarrow.dataset.dataset(warehouse / "minutes").to_table().to_pylist()[-1:]
        assert row["queue"] == "mail"
        return int(pyarrow.dataset.dataset(warehouse / "attempts").count_rows())

    assert run() == 30
    note.enqueue_many([(number,) for number in range(5)])
    app.run_worker(burst=True)
    assert run() == 35
