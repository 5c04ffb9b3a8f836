"""`dueline pipeline archive`: what a history told, kept elsewhere."""

import time
from pathlib import Path
from typing import Annotated

import typer

from dueline.cli.failure import Exit, show_error
from dueline.cli.lake import (
    OUT,
    ConfOption,
    Engine,
    EngineOption,
    MasterOption,
    OutOption,
    QueuesOption,
    open_pipeline,
    output_of,
    progress,
)
from dueline.cli.options import read_instant
from dueline.cli.output import Instant, note
from dueline.clock import asked_instant_us
from dueline.errors import BadInput, StoreCorrupt

SinceOption = Annotated[
    str | None, typer.Option("--since", metavar="ISO", help="Only from this instant on.")
]
UntilOption = Annotated[
    str | None, typer.Option("--until", metavar="ISO", help="Only before this instant.")
]


def archive(
    context: typer.Context,
    *,
    to: Annotated[Path, typer.Option("--to", metavar="DIR", help="The folder of the archive.")],
    since: SinceOption = None,
    until: UntilOption = None,
    out: OutOption = OUT,
    queue: QueuesOption = None,
    engine: EngineOption = Engine.SPARK,
    master: MasterOption = "local[*]",
    conf: ConfOption = None,
) -> int:
    """Write the history of a period to Parquet files with a manifest, which `verify` compares.

    Copies what is new first. Without --until it is all that is settled now. An archive that is
    whole stays as it is; one that was cut off is made anew.

    Example: dueline pipeline archive --until 2026-11-01T00:00:00Z --to october --engine arrow
    """
    since_us, until_us = read_period(since, until)
    made = open_pipeline(context, out, queue, engine, master=master, conf=conf)
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


def read_period(since: str | None, until: str | None) -> tuple[int | None, int | None]:
    """Read the bounds of a period; either may be open.

    Raises: BadInput: one is no instant, or nothing lies between them.
    """
    since_us = None if since is None else asked_instant_us(read_instant(since), "--since")
    until_us = None if until is None else asked_instant_us(read_instant(until), "--until")
    if since_us is not None and until_us is not None and since_us >= until_us:
        raise BadInput("--since is not before --until.", hint="Give the earlier as --since.")
    return since_us, until_us
