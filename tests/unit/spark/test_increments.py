"""Tables of a lake: N increments, one full build and the oracle agree to the row (P5)."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.harness.spark import oracle
from tests.harness.spark.lakes import Lake, rows_of
from tests.harness.spark.misbehaving import history
from tests.harness.spark.tables import Line


def cut(rows: Sequence[Line], pieces: int) -> list[Sequence[Line]]:
    """Divide rows."""
    size = -(-len(rows) // pieces)
    return [rows[start : start + size] for start in range(0, len(rows), size)]


def compare(lake: Lake, rows: Sequence[Line], **options: int) -> None:
    """Compare all tables with the oracle."""
    for name, wanted in oracle.tables(rows, **options).items():
        assert rows_of(lake.table(name)) == bare(wanted), name


def bare(rows: Sequence[Line]) -> Counter[Any]:
    """Return rows without an order."""
    return Counter(tuple(sorted(row.items())) for row in rows)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("pieces", [1, 3, 12])
def test_increments_are_a_full_build(tmp_path: Path, seed: int, pieces: int) -> None:
    lake = Lake(tmp_path)
    rows = history(seed)
    some: list[Line] = []
    for piece in cut(rows, pieces):
        lake.add(piece)
        lake.run()
        some += piece
        if pieces < 8:
            compare(lake, some)
    compare(lake, rows)


@pytest.mark.long
def test_spark_makes_the_same_tables(tmp_path: Path, spark: Any) -> None:
    lake = Lake(tmp_path, spark)
    rows = history(7)
    for piece in cut(rows, 2):
        lake.add(piece)
        lake.run()
    compare(lake, rows)
