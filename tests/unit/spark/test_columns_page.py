"""The page of columns names those that the tables have."""

import re
from pathlib import Path

import pytest

pytest.importorskip("deltalake")

PAGE = Path(__file__).parents[3] / "docs" / "pipeline" / "columns.md"


def test_the_page_names_each_column_of_each_table() -> None:
    from dueline.spark.pipeline.tables import AUDIT, DESIGNS, OPERATORS, SUMS

    text = PAGE.read_text(encoding="utf-8")
    sections = dict(re.findall(r"^## ([^\n]+)\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL))
    named = {name: set(re.findall(r"`(\w+)`", part)) for name, part in sections.items()}
    assert named["bronze"] == set(DESIGNS["bronze"].shape.names)
    assert set(DESIGNS["silver"].shape.names) <= named["bronze"] | named["silver"]
    assert named["audit"] - {"judged"} == set(AUDIT.inside.names)
    rows = [line for line in text.splitlines() if line.startswith("| `")]
    for table in (*SUMS, *OPERATORS):
        (row,) = [line for line in rows if f"`{table}`" in line.split("|")[1]]
        columns = set(re.findall(r"`(\w+)`", row)) - {"gold_lateness", "gold_run", table}
        assert columns == set(DESIGNS[table].shape.names) - {"day"}, table


def test_the_description_for_programs_is_that_of_the_code() -> None:
    from tools import table_schema

    assert table_schema.PAGE.read_text(encoding="utf-8") == table_schema.text(), (
        "run `python -m tools.table_schema`"
    )
    described = {table["name"]: table for table in table_schema.schema()["tables"]}
    for name in ("bronze", "silver"):
        assert [one["name"] for one in described[name]["columns"] if "meaning" not in one] == []


def test_the_examples_run(tmp_path: Path) -> None:
    import duckdb

    from tests.harness.spark.tables import app_with_a_past, made, quiet, table_in
    from tools import table_schema

    made(tmp_path / "lake", app_with_a_past(tmp_path)).run([], quiet)
    with duckdb.connect() as connection:
        for name in ("silver", "poison", "gold_minute", "flow"):
            connection.register(name, table_in(tmp_path / "lake", name).view().dataset())
        for sql in table_schema.EXAMPLES.values():
            found = connection.sql(sql).fetchall()
            assert found or "job_id" in sql or "flow" in sql
