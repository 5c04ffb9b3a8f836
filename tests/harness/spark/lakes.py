"""Lakes whose bronze is written by tests."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.harness.spark.tables import Line


class Lake:
    """A lake in a folder."""

    def __init__(self, root: Path, spark: Any = None, **goal: Any) -> None:
        from dueline.spark.pipeline import delta, queries
        from dueline.spark.pipeline.increments import DuckEngine, Goal

        self.place = delta.place_of(str(root))
        self.small = DuckEngine(queries.Duck())
        self.spark = spark
        self.goal = Goal(**goal)

    def table(self, name: str) -> Any:
        """Open a table."""
        from dueline.spark.pipeline.tables import open_table

        return open_table(self.place, name)

    def add(self, rows: Sequence[Line]) -> None:
        """Append a batch to bronze."""
        import pyarrow as pa

        from dueline.spark.pipeline.tables import BATCH, BRONZE

        table = self.table("bronze")
        table.create()
        batch = (table.position(BATCH) or 0) + 1
        written = pa.Table.from_pylist([{**row, "batch": batch} for row in rows], BRONZE.inside)
        table.commit(table.writer.write(written), positions={BATCH: batch, "instant": batch})

    def run(self, names: Sequence[str] = ()) -> Any:
        """Bring the tables up to bronze."""
        from dueline.spark.pipeline.increments import Increments
        from dueline.spark.pipeline.tables import DESIGNS

        def large() -> Any:
            if self.spark is None:
                return self.small
            from dueline.spark.pipeline.spark_engine import SparkEngine

            return SparkEngine(self.spark)

        small_max = 10**9 if self.spark is None else 0
        made = Increments(self.place, self.small, large, self.goal, small_max)
        wanted = names or [name for name in DESIGNS if name != "bronze"]
        return made.run(wanted, lambda _: None)


def rows_of(table: Any) -> Counter[Any]:
    """Read a table as rows without an order, instants as microseconds, without the day."""
    import pyarrow as pa

    content = table.view().dataset().to_table()
    for place, field in enumerate(content.schema):
        if pa.types.is_timestamp(field.type):
            column = content.column(place).cast(pa.timestamp("us", "UTC")).cast(pa.int64())
            content = content.set_column(place, field.name, column)
    rows: Counter[Any] = Counter()
    for row in content.to_pylist():
        row.pop("day", None)
        rows[tuple(sorted(row.items()))] += 1
    return rows
