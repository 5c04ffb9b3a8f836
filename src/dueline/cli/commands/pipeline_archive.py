"""`dueline pipeline archive`: write the history of a period to a table."""

import time
from typing import Annotated

import typer

from dueline.cli.errors import Exit, show_error
from dueline.cli.option_groups import with_option_groups
from dueline.cli.options import option
from dueline.cli.output import Instant, note
from dueline.cli.pipeline_options import TableOptions, open_pipeline, output_of, place, progress
from dueline.core.errors import StoreCorrupt


@with_option_groups
def archive(
    context: typer.Context,
    *,
    to: Annotated[str, option("DIR", "Folder or address of the archive.", "--to")],
    tables: TableOptions,
) -> int:
    """Write the history of a period to a Delta table of its own.

    Updates the tables first. Without --until, the period ends with the last settled event. A
    complete archive is not changed; an interrupted one is written again. `dueline pipeline verify
    --archive DIR` reads its files and checks them.

    Example: dueline pipeline archive --until 2026-11-01T00:00:00Z --to october --engine duckdb
    """
    since_us, until_us = tables.read()
    made = open_pipeline(context, tables)
    try:
        to_place = place(to, tables.storage_options)
        written = made.archive(
            to_place, progress(time.monotonic()), since_us=since_us, until_us=until_us
        )
    except StoreCorrupt as error:  # history expired, or the folder is damaged
        show_error(error)
        return Exit.CHECK
    output_of(context).entry(
        {
            "archive": to,
            "files": written.files,
            "rows": written.rows,
            "until": Instant(written.until_us),
            "is_new": written.is_new,
        }
    )
    if not written.is_new:
        note("The archive is complete already; nothing was written.")
    return Exit.DONE
