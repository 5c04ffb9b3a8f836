"""`dueline pipeline optimize` and `vacuum`: care of the tables."""

import time
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from dueline.cli.options import DryRunOption, option
from dueline.cli.output import Entry
from dueline.cli.pipeline_options import (
    OUT,
    OutOption,
    StorageOption,
    open_tables,
    output_of,
    progress,
)
from dueline.core.durations import parse_span
from dueline.core.errors import BadInput

_HOUR_US = 3_600_000_000


def optimize(
    context: typer.Context, *, out: OutOption = OUT, storage_options: StorageOption = None
) -> None:
    """Merge small files of the tables into large ones.

    No row changes. Readers of earlier versions still find the replaced files until `dueline
    pipeline vacuum` deletes them.

    Example: dueline pipeline optimize --out lake
    """
    made = open_tables(context, out, storage_options)
    _show(context, made.optimize(progress(time.monotonic())), ("table", "files_before", "files"))


def vacuum(
    context: typer.Context,
    *,
    out: OutOption = OUT,
    older: Annotated[str, option("DURATION", "Keep files that are newer.", "--older")] = "168h",
    dry_run: DryRunOption = False,
    storage_options: StorageOption = None,
) -> None:
    """Delete files that no table uses any more.

    These are files that `optimize` or a later run replaced, and those of interrupted runs. Queries
    that began before and still read them fail, so keep them for longer than the longest query.

    Example: dueline pipeline vacuum --out lake --older 24h
    """
    hours, rest = divmod(parse_span(older), _HOUR_US)
    if rest:
        raise BadInput("--older must be whole hours.", hint="Use --older 168h.")
    made = open_tables(context, out, storage_options)
    _show(context, made.vacuum(hours, dry_run=dry_run), ("table", "files"))


def _show(
    context: typer.Context, rows: Sequence[Mapping[str, Any]], columns: Sequence[str]
) -> None:
    entries: list[Entry] = [dict(entry) for entry in rows]
    output_of(context).entries(entries, columns)
