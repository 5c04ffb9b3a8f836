"""`dueline pipeline compact`: merge small files."""

import time
from typing import Annotated

import typer

from dueline.cli.options import option
from dueline.cli.pipeline_options import OUT, OutOption, need, output_of, progress

ROWS = 1_000_000


def compact(
    context: typer.Context,
    *,
    out: OutOption = OUT,
    rows: Annotated[int, option("N", "Maximum number of rows per file.", min=1)] = ROWS,
) -> None:
    """Merge small files of the tables into large ones.

    No row changes. The next run deletes the replaced files, so that current readers can finish.

    Example: dueline pipeline compact --out lake
    """
    need("pyarrow")
    from dueline.spark.pipeline.compaction import compact as merge  # noqa: PLC0415  (may not be installed)
    from dueline.spark.pipeline.table_store import Folder  # noqa: PLC0415

    merged = merge(Folder(out), rows, progress(time.monotonic()))
    output_of(context).entry({"out": str(out), **merged._asdict()})
