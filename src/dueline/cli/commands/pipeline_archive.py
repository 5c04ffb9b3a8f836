"""`dueline pipeline archive`: write the history to files."""

import time
from pathlib import Path
from typing import Annotated

import typer

from dueline.cli.errors import Exit, show_error
from dueline.cli.option_groups import with_option_groups
from dueline.cli.options import option
from dueline.cli.output import Instant, note
from dueline.cli.pipeline_options import TableOptions, open_pipeline, output_of, progress
from dueline.core.errors import StoreCorrupt


@with_option_groups
def archive(
    context: typer.Context,
    *,
    to: Annotated[Path, option("DIR", "Folder of the archive.", "--to")],
    tables: TableOptions,
) -> int:
    """Write the history of a period to Parquet files.

    Updates the tables first. Without --until, the period ends with the last settled event. A
    complete archive is not changed; an interrupted one is written again. `dueline pipeline verify
    --archive DIR` checks its manifest.

    Example: dueline pipeline archive --until 2026-11-01T00:00:00Z --to october --engine arrow
    """
    since_us, until_us = tables.read()
    made = open_pipeline(context, tables)
    try:
        written = made.archive(to, progress(time.monotonic()), since_us=since_us, until_us=until_us)
    except StoreCorrupt as error:  # history expired, or the folder is damaged
        show_error(error)
        return Exit.CHECK
    output_of(context).entry(
        {
            "archive": str(to),
            "files": written.files,
            "rows": written.rows,
            "until": Instant(written.until_us),
            "is_new": written.is_new,
        }
    )
    if not written.is_new:
        note("The archive is complete already; nothing was written.")
    return Exit.DONE
