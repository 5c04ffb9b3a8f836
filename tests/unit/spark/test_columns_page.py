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
