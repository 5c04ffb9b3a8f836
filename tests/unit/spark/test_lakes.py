"""Lakes elsewhere: an S3 server, readers of other programs, and drivers that are killed (P5)."""

import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dueline import Dueline
from tests.harness.spark.tables import (
    history_of,
    live_on,
    made,
    quiet,
    rows_in,
    table_in,
)

SECRET = "very-secret-key"  # noqa: S105  (it has to be hidden)


def stored(app: Dueline) -> Counter[Any]:
    """Return the history of the store, read in plain Python."""
    return Counter(tuple(sorted(line.items())) for line in history_of(app, "mail", 3))


@pytest.fixture(scope="module")
def s3() -> Iterator[dict[str, str]]:
    """Run an S3 server with a bucket."""
    import boto3
    from botocore.exceptions import EndpointConnectionError

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    # In a process of its own: delta-rs keeps Python's lock while it writes a file.
    words = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    server = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    url = f"http://127.0.0.1:{port}"
    options = {
        "AWS_ENDPOINT_URL": url, "AWS_ALLOW_HTTP": "true",
        "AWS_ACCESS_KEY_ID": "somebody", "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_REGION": "us-east-1", "aws_conditional_put": "etag",
    }  # fmt: skip
    client = boto3.client(
        "s3", endpoint_url=url, aws_access_key_id="somebody", aws_secret_access_key=SECRET,
        region_name="us-east-1",
    )  # fmt: skip
    until = time.monotonic() + 60
    while True:
        try:
            client.create_bucket(Bucket="lake")
            break
        except EndpointConnectionError:
            assert time.monotonic() < until
            time.sleep(0.2)
    yield options
    server.kill()
    server.wait()


def on_s3(app: Dueline, name: str, options: dict[str, str], start: Any = None) -> Any:
    """Make a pipeline whose tables are on the server."""
    from dueline.spark.pipeline.delta import place_of
    from dueline.spark.pipeline.engine import Settings
    from dueline.spark.pipeline.pipeline import Pipeline

    place = place_of(f"s3://lake/{name}", options)
    return Pipeline(place, Settings(app.url), start, small_max=0)


def rows_on_s3(pipe: Any, table: str) -> Counter[Any]:
    """Read a table on the server."""
    from dueline.spark.pipeline.queries import lines_in
    from dueline.spark.pipeline.tables import open_table

    lines = lines_in(open_table(pipe._lake, table).view().dataset().to_table())
    left = [{name: line[name] for name in line if name not in ("batch", "day")} for line in lines]
    return Counter(tuple(sorted(line.items())) for line in left)


@pytest.mark.long
def test_tables_on_an_object_store_are_those_of_a_folder(
    app: Dueline, tmp_path: Path, s3: dict[str, str]
) -> None:
    from dueline.core.errors import Conflict
    from dueline.spark.pipeline.delta import place_of

    pipe, other = on_s3(app, "plain", s3), on_s3(app, "plain", s3)
    pipe.run([], quiet)
    live_on(app, 30)
    pipe.run([], quiet)
    made(tmp_path / "lake", app).run([], quiet)
    assert rows_on_s3(pipe, "bronze") == stored(app)
    for table in ("silver", "gold_minute", "gold_failure", "flow", "slo", "poison"):
        assert rows_on_s3(pipe, table) == rows_in(tmp_path / "lake", table), table
    assert all(check.is_good for check in pipe.verify())
    live_on(app, 31)
    conflicts = 0
    for one in (pipe, other):  # the second goes on where the first ended
        try:
            one.run([], quiet)
        except Conflict:
            conflicts += 1
    assert not conflicts
    archived = pipe.archive(place_of("s3://lake/archive", s3), quiet)
    assert archived.rows == rows_on_s3(pipe, "bronze").total()
    assert pipe.optimize(quiet)
    assert pipe.vacuum(0)
    assert rows_on_s3(pipe, "bronze") == stored(app)


@pytest.mark.long
def test_spark_reads_and_writes_on_an_object_store(
    spark: Any, app: Dueline, s3: dict[str, str]
) -> None:
    from dueline.spark.pipeline.spark_engine import SparkEngine

    pipe, plain = on_s3(app, "spark", s3, lambda: SparkEngine(spark)), on_s3(app, "duck", s3)
    for one in (pipe, plain):
        one.run([], quiet)
    for table in ("bronze", "silver", "gold_lateness", "flow"):
        assert rows_on_s3(pipe, table) == rows_on_s3(plain, table), table


def test_a_bucket_that_is_not_there_is_named_without_secrets(
    app: Dueline, s3: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from dueline.cli import run

    (tmp_path / "s3.json").write_text(json.dumps({**s3, "max_retries": "0"}))
    words = ["--store", app.url, "pipeline", "run", "--engine", "duckdb", "--storage-options"]
    assert run([*words, str(tmp_path / "s3.json"), "--out", "s3://missing/lake"]) != 0
    told = capsys.readouterr()
    assert "s3://missing/lake/bronze cannot be used" in told.err
    assert SECRET not in told.err + told.out
    (tmp_path / "s3.json").write_text("[1]")
    assert run([*words, str(tmp_path / "s3.json"), "--out", "s3://lake/lake"]) == 2
    assert "is not a JSON object of strings" in capsys.readouterr().err


def test_other_programs_read_each_table_by_its_address(app: Dueline, tmp_path: Path) -> None:
    import duckdb
    import polars as pl
    from deltalake import DeltaTable

    from dueline.spark.pipeline.tables import DESIGNS

    made(tmp_path / "lake", app).run([], quiet)
    for name in DESIGNS:
        address, rows = str(tmp_path / "lake" / name), table_in(tmp_path / "lake", name).rows()
        assert pl.scan_delta(address).collect().height == rows
        assert len(DeltaTable(address).to_pandas()) == rows
        connection = duckdb.connect()
        connection.register("rows", DeltaTable(address).to_pyarrow_dataset())
        assert connection.sql("SELECT count(*) FROM rows").fetchall() == [(rows,)]
        assert rows or name == "suspicious"
    silver = pl.scan_delta(str(tmp_path / "lake" / "silver"))
    done = silver.filter(pl.col("outcome") == "done").select(pl.len()).collect().item()
    ran = sum(line["outcome"] == "done" for line in history_of(app, "mail", 3))
    assert done == ran > 0


@pytest.mark.long
@pytest.mark.parametrize("seed", range(4))
def test_a_driver_that_is_killed_loses_and_doubles_nothing(
    app: Dueline, tmp_path: Path, seed: int
) -> None:
    dice = random.Random(seed)
    words = [sys.executable, "-m", "dueline", "--store", app.url, "pipeline", "run", "--engine",
             "duckdb", "--out", str(tmp_path / "lake")]  # fmt: skip
    for number in range(3):
        live_on(app, 3 + number)
        driver = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        log = tmp_path / "lake" / "bronze" / "_delta_log"
        until = time.monotonic() + 60
        while driver.poll() is None and time.monotonic() < until and not log.is_dir():
            time.sleep(0.01)
        time.sleep(dice.uniform(0, 1.5))
        os.kill(driver.pid, signal.SIGKILL)
        driver.wait()
    pipe = made(tmp_path / "lake", app)
    pipe.run([], quiet)
    assert rows_in(tmp_path / "lake", "bronze") == stored(app)
    made(tmp_path / "whole", app).run([], quiet)
    for table in ("silver", "gold_minute", "gold_shard", "flow", "poison", "fairness", "slo"):
        assert rows_in(tmp_path / "lake", table) == rows_in(tmp_path / "whole", table), table


WITHOUT_SPARK = """
import sys

sys.modules["pyspark"] = None  # as with `pip install 'dueline[lake]'`
from dueline.cli.main import main

main()
"""


@pytest.mark.long
def test_duckdb_needs_no_spark(app: Dueline, tmp_path: Path) -> None:
    command = [sys.executable, "-c", WITHOUT_SPARK, "--store", app.url, "pipeline"]
    for words in (
        "run --engine duckdb --queue mail --once",
        "status",
        "audit --engine duckdb",
        "report --file report.html",
        "init project --sdp",
    ):
        where = [] if words.startswith("init") else ["--out", str(tmp_path / "lake")]
        ran = subprocess.run(
            [*command, *words.split(), *where],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert ran.returncode in (0, 6), ran.stderr  # 6: the history is not all of it
        assert "Traceback" not in ran.stderr
