"""Tables of a catalog, read by name by other engines (P15)."""

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyiceberg", reason="PyIceberg is not installed (requirements/lakehouse.txt)")

from pyiceberg.io.pyarrow import parquet_files_to_data_files

from dueline import Dueline
from dueline.core.errors import Conflict, NotFound
from dueline.spark import update_tables
from dueline.spark.pipeline import iceberg
from dueline.spark.pipeline.delta import place_of
from dueline.spark.pipeline.erasure import Subject
from dueline.spark.pipeline.tables import DESIGNS, open_table
from tests.harness.spark.tables import made, quiet
from tests.integration.lakehouse.shop import filled


@pytest.fixture
def catalog(tmp_path: Path) -> Any:
    """Make a catalog in SQLite."""
    from pyiceberg.catalog.sql import SqlCatalog

    return SqlCatalog("shop", uri=f"sqlite:///{tmp_path / 'catalog.db'}")


@pytest.fixture
def app(tmp_path: Path) -> Dueline:
    """Make a store with tables."""
    app = filled(tmp_path)
    update_tables(app.url, str(tmp_path / "lake"))
    return app


def counted(rows: Any) -> Counter[str]:
    """Count the rows of a table, without its day."""
    return Counter(
        repr(sorted((name, value) for name, value in row.items() if name != "day"))
        for row in rows.to_pylist()
    )


def expect_equal(lake: Path, catalog: Any) -> None:
    """Each table of the catalog has the rows of that in Delta."""
    for name in DESIGNS:
        table = open_table(place_of(str(lake)), name)
        shown = catalog.load_table(f"dueline.{name}")
        assert counted(shown.scan().to_arrow()) == counted(table.view().dataset().to_table()), name


def test_a_catalog_follows_the_tables(app: Dueline, tmp_path: Path, catalog: Any) -> None:
    lake = tmp_path / "lake"
    place = place_of(str(lake))
    first = {table.table: table for table in iceberg.publish(place, catalog)}
    assert first.keys() == DESIGNS.keys()
    assert first["silver"].rows == 88
    expect_equal(lake, catalog)
    before = {name: catalog.load_table(f"dueline.{name}").metadata for name in DESIGNS}
    again = iceberg.publish(place, catalog)
    assert {(table.added, table.removed) for table in again} == {(0, 0)}
    assert {name: catalog.load_table(f"dueline.{name}").metadata for name in DESIGNS} == before
    app.send("send", [5], queue="mail", tenant="acme")
    app.run_worker(burst=True)
    update_tables(app.url, str(lake))
    pipe = made(lake, app)
    pipe.optimize(quiet)
    iceberg.publish(place, catalog)
    expect_equal(lake, catalog)
    pipe.forget(Subject(tenant="acme"), quiet)
    iceberg.publish(place, catalog)
    expect_equal(lake, catalog)
    written = b"".join(file.read_bytes() for file in (lake / "_iceberg").rglob("*.avro"))
    assert b"silent" not in written  # no bounds of errors


def test_other_engines_read_by_name_and_skip_files(
    app: Dueline, tmp_path: Path, catalog: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    import polars as pl

    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")
    iceberg.publish(place_of(str(tmp_path / "lake")), catalog)
    silver = catalog.load_table("dueline.silver")
    assert [field.name for field in silver.spec().fields] == ["day"]
    assert list(silver.scan(row_filter="ended < '2020-01-01T00:00:00+00:00'").plan_files()) == []
    duck = silver.scan().to_duckdb("silver")
    counts = duck.sql("SELECT tenant, count(*) FROM silver GROUP BY 1 ORDER BY 1").fetchall()
    assert counts == [("acme", 66), ("zeta", 22)]
    slo = pl.scan_iceberg(catalog.load_table("dueline.slo")).collect()
    assert slo["started"].to_list() == [88]


def test_of_two_publications_at_once_one_fails_and_a_repetition_heals(
    app: Dueline, tmp_path: Path, catalog: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, whole = place_of(str(tmp_path / "lake")), parquet_files_to_data_files
    iceberg.publish(place, catalog)
    app.send("send", [5], queue="mail", tenant="acme")
    app.run_worker(burst=True)
    update_tables(app.url, str(tmp_path / "lake"))

    def meanwhile(*words: Any) -> Any:
        monkeypatch.setattr(iceberg, "parquet_files_to_data_files", whole)
        iceberg.publish(place, catalog)
        return whole(*words)

    monkeypatch.setattr(iceberg, "parquet_files_to_data_files", meanwhile)
    with pytest.raises(Conflict):
        iceberg.publish(place, catalog)
    iceberg.publish(place, catalog)
    expect_equal(tmp_path / "lake", catalog)


def test_the_command_publishes_to_a_configured_catalog(app: Dueline, tmp_path: Path) -> None:
    (tmp_path / ".pyiceberg.yaml").write_text(
        f"catalog:\n  shop:\n    type: sql\n    uri: sqlite:///{tmp_path / 'shop.db'}\n"
    )
    variables = {**os.environ, "PYICEBERG_HOME": str(tmp_path)}

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "dueline", "pipeline", "publish", *words]
        return subprocess.run(command, cwd=tmp_path, env=variables, text=True, capture_output=True,
                              check=False)  # fmt: skip

    done = run("--catalog", "shop", "--out", "lake")
    assert (done.returncode, "silver" in done.stdout) == (0, True), done.stderr
    assert run("--catalog", "other", "--out", "lake").returncode == 7
    assert run("--catalog", "shop", "--out", "none").returncode == 4


def test_a_lake_without_tables_is_not_found(tmp_path: Path, catalog: Any) -> None:
    with pytest.raises(NotFound):
        iceberg.publish(place_of(str(tmp_path / "none")), catalog)
