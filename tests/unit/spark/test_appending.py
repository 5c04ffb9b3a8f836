"""Streams appended to Delta tables, each batch once (P3)."""

import os
import signal
import subprocess
import sys
from collections import Counter
from datetime import date
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("deltalake")

import pyarrow as pa

from dueline import BadInput, ConfigError, Conflict, Dueline
from dueline.core.store import Row
from tests.harness.object_store import object_store

ROOT = Path(__file__).parents[3]
ROWS = 200
DAY_US = 86_400_000_000


def numbers_in(table: str, options: Any = None) -> Counter[int]:
    """Read the numbers in a table."""
    from deltalake import DeltaTable

    rows = DeltaTable(table, storage_options=options).to_pyarrow_table(columns=["id"])
    return Counter(int(one) for one in rows.column("id").to_pylist())


@pytest.fixture
def orders(tmp_path: Path) -> Dueline:
    """Fill a stream, four days of it."""
    app = Dueline(f"sqlite:///{tmp_path / 'jobs.db'}?synchronous=NORMAL")
    app.store.append(
        [Row("orders", 0, number * DAY_US // 50, b"%08d" % number, b"{}") for number in range(ROWS)]
    )
    return app


@pytest.mark.long
def test_a_driver_that_is_killed_before_or_after_a_commit_appends_each_row_once(
    spark: Any, orders: Dueline, tmp_path: Path
) -> None:
    from deltalake import DeltaTable

    from tests.unit.spark import appender, driver

    gateway = spark.sparkContext._gateway.gateway_parameters
    env = os.environ | {
        driver.PORT_VARIABLE: str(gateway.port),
        driver.SECRET_VARIABLE: gateway.auth_token,
    }
    table = str(tmp_path / "orders")

    def run(moment: str, batch: int) -> int:
        words = [moment, str(batch), orders.url, table, str(tmp_path / "checkpoint")]
        command = [sys.executable, "-m", "tests.unit.spark.appender", *words]
        with (tmp_path / "errors").open("ab") as errors:
            return subprocess.run(command, cwd=ROOT, env=env, stderr=errors, check=False).returncode

    assert run(appender.BEFORE, 1) == -signal.SIGKILL
    assert len(numbers_in(table)) == 50
    assert run(appender.AFTER, 2) == -signal.SIGKILL
    assert len(numbers_in(table)) == 150
    assert run(appender.NEVER, 0) == 0, (tmp_path / "errors").read_text()
    assert numbers_in(table) == Counter(range(ROWS))
    left = DeltaTable(table).vacuum(0, enforce_retention_duration=False, dry_run=False, full=True)
    assert len(left) == 1  # of the batch whose commit did not come
    chosen = [("day", "=", date(1970, 1, 2))]
    some = DeltaTable(table).to_pyarrow_table(columns=["id"], filters=chosen)
    assert sorted(map(int, some.column("id").to_pylist())) == [*range(50, 100)]


@pytest.mark.long
def test_a_batch_is_appended_once_to_an_object_store_and_one_that_does_not_fit_is_refused(
    spark: Any, tmp_path: Path
) -> None:
    from dueline.spark import append_once

    def frame(text: str = "concat(id, '')", many: int = 90) -> Any:
        return spark.range(0, many, 1, 3).selectExpr(f"{text} AS id", "now() AS at", "id AS size")

    with object_store(tmp_path) as options:
        table = "s3://lake/orders"
        terms: dict[str, Any] = {"query": "orders", "storage_options": options}
        assert append_once(frame(), 0, table, **terms)
        assert not append_once(frame(), 0, table, **terms)
        assert append_once(frame(many=5), 1, table, **terms)
        assert not append_once(frame(), 0, table, **terms)
        assert numbers_in(table, options).total() == 95
        with pytest.raises(BadInput, match=r"The column id of the batch is int64.*string"):
            append_once(frame("id"), 2, table, **terms)
        with pytest.raises(BadInput, match="The table has no column 'more'"):
            append_once(frame().selectExpr("*", "1 AS more"), 2, table, **terms)
        assert append_once(frame().select("id"), 3, table, **terms)  # the others are null
        wrong: Any = {"query": "a", "storage_options": {**options, "AWS_REGION": "none-of-these"}}
        with pytest.raises(ConfigError, match="cannot be used") as refused:
            append_once(frame(), 0, "s3://none/orders", **wrong)
        assert "of-the-tests" not in str(refused.value)
        assert "\n" not in str(refused.value)
    with pytest.raises(BadInput, match=r"does not report the query.*query="):
        append_once(frame(), 0, str(tmp_path / "plain"))


def test_of_two_writers_of_one_batch_one_appends_it(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from deltalake.exceptions import CommitFailedError

    from dueline.spark import append_once
    from dueline.spark.writing import append

    table = str(tmp_path / "orders")
    frame = spark.range(10).selectExpr("cast(id AS string) AS id")
    real = append.commit

    def late(*arguments: Any) -> None:
        monkeypatch.setattr(append, "commit", real)
        assert append_once(frame, 0, table, query="orders")
        real(*arguments)

    monkeypatch.setattr(append, "commit", late)
    assert not append_once(frame, 0, table, query="orders")
    assert numbers_in(table).total() == 10

    def never(*arguments: Any) -> None:
        raise CommitFailedError("busy")

    monkeypatch.setattr(append, "commit", never)
    with pytest.raises(Conflict, match="keep writing"):
        append_once(frame, 1, table, query="orders")


def test_a_table_with_rules_that_are_not_followed_is_refused(spark: Any, tmp_path: Path) -> None:
    from deltalake import DeltaTable, write_deltalake

    from dueline.spark import append_once

    table = str(tmp_path / "orders")
    write_deltalake(table, pa.table({"id": ["1"]}))
    DeltaTable(table).alter.add_constraint({"short": "id < 'x'"})
    frame = spark.range(10).selectExpr("cast(id AS string) AS id")
    with pytest.raises(BadInput, match=r"delta\.constraints\.short"):
        append_once(frame, 0, table, query="orders")
    with pytest.raises(BadInput, match="no column 'day' that can be a partition"):
        append_once(frame, 0, str(tmp_path / "new"), query="orders", partition_by=["day"])
