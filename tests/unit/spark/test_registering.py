"""Temporary views of all tables."""

from pathlib import Path
from typing import Any

import pytest

from dueline import BadInput, Dueline
from dueline.core.errors import NotFound
from tests.harness.spark.tables import made, quiet


def test_all_tables_of_a_lake_and_a_store_are_views(
    spark: Any, shop: Dueline, tmp_path: Path
) -> None:
    from dueline.spark import register

    made(tmp_path / "lake", shop).run(["bronze", "silver", "gold"], quiet)
    names = register(spark, lake=tmp_path / "lake", store=shop.url, prefix="shop_")
    assert {"shop_jobs", "shop_attempts", "shop_results", "shop_silver", "shop_gold_minute"} <= {
        *names
    }
    (row,) = spark.sql(
        "SELECT count(DISTINCT a.job_id) AS jobs, count(*) AS attempts, (SELECT count(*) FROM"
        " shop_silver) AS silver FROM shop_attempts a WHERE a.worker IS NOT NULL"
    ).collect()
    assert row.jobs < row.attempts == row.silver
    for name in names:
        assert spark.table(name).columns
        spark.catalog.dropTempView(name)


def test_what_is_not_there_is_not_registered(spark: Any, tmp_path: Path) -> None:
    from dueline.spark import register

    with pytest.raises(BadInput, match="nothing to register"):
        register(spark)
    with pytest.raises(NotFound, match="There is no table bronze"):
        register(spark, lake=tmp_path)
