"""`dueline pipeline archive`: what a history told, kept elsewhere."""

import time
from pathlib import Path
from typing import Annotated

import typer

from dueline.cli.errors import Exit, show_error
from dueline.cli.option_groups import with_option_groups
from dueline.cli.output import Instant, note
from dueline.cli.pipeline_options import (
    OUT,
    ClusterOptions,
    Engine,
    EngineOption,
    OutOption,
    PeriodOptions,
    QueuesOption,
    open_pipeline,
    output_of,
    progress,
)
from dueline.core.errors import StoreCorrupt


@with_option_groups
def archive(
    context: typer.Context,
    *,
    to: Annotated[Path, typer.Option("--to", metavar="DIR", help="The folder of the archive.")],
    period: PeriodOptions,
    out: OutOption = OUT,
    queue: QueuesOption = None,
    engine: EngineOption = Engine.SPARK,
    cluster: ClusterOptions,
) -> int:
    """Write the history of a period to Parquet files with a manifest, which `verify` compares.

    Copies what is new first. Without --until it is all that is settled now. An archive that is
    whole stays as it is; one that was cut off is made anew.

    Example: dueline pipeline archive --until 2026-11-01T00:00:00Z --to october --engine arrow
    """
    since_us, until_us = period.read()
    made = open_pipeline(context, out, queue, engine, cluster)
    try:
        told = made.archive(to, progress(time.monotonic()), since_us=since_us, until_us=until_us)
    except StoreCorrupt as error:  # the history has lost rows, or the folder is damaged
        show_error(error)
        return Exit.CHECK
    output_of(context).entry(
        {
            "archive": str(to),
            "files": told.files,
            "rows": told.rows,
            "until": Instant(told.until_us),
            "is_new": told.is_new,
        }
    )
    if not told.is_new:
        note("It was there already, and whole; nothing was written.")
    return Exit.DONE
