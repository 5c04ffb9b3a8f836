"""`dueline pipeline compact`: few large files."""

import time
from typing import Annotated

import typer

from dueline.cli.pipeline_options import OUT, OutOption, need, output_of, progress

ROWS = 1_000_000


def compact(
    context: typer.Context,
    *,
    out: OutOption = OUT,
    rows: Annotated[
        int, typer.Option(metavar="N", min=1, help="At most so many rows in a part.")
    ] = ROWS,
) -> None:
    """Make few large files of the many that frequent runs leave; no row is changed.

    What is replaced goes with the next run, or when this is repeated, so that whoever reads the
    tables meanwhile still finds it.

    Example: dueline pipeline compact --out lake
    """
    need("pyarrow")
    from dueline.spark.pipeline.compaction import compact as merge  # noqa: PLC0415  (may not be installed)
    from dueline.spark.pipeline.table_store import Folder  # noqa: PLC0415

    told = merge(Folder(out), rows, progress(time.monotonic()))
    output_of(context).entry({"out": str(out), **told._asdict()})
