"""`dueline pipeline optimize`, `vacuum` and `adopt`: care of the tables."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from dueline.cli.options import DryRunOption, argument, option
from dueline.cli.output import Entry
from dueline.cli.pipeline_options import (
    OUT,
    EngineOption,
    OutOption,
    StorageOption,
    TableOptions,
    open_pipeline,
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


def compact(
    context: typer.Context, *, out: OutOption = OUT, storage_options: StorageOption = None
) -> None:
    """Merge small files: the old name of `optimize`.

    Use `dueline pipeline optimize`.
    """
    optimize(context, out=out, storage_options=storage_options)


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


def adopt(
    context: typer.Context,
    old: Annotated[Path, argument("OLD", "Folder of the old tables, or of an old archive.")],
    new: Annotated[str, argument("NEW", "Folder or address of the new tables or archive.")],
    *,
    engine: EngineOption = "spark",
    storage_options: StorageOption = None,
) -> None:
    """Take over the tables or an archive of an older version.

    Bronze is copied row by row, with its positions, and the other tables are computed from it. An
    archive needs no store. The old folder is not changed.

    Example: dueline pipeline adopt lake lake-delta --engine duckdb
    """
    from dueline.spark.pipeline.engine import is_old_archive  # noqa: PLC0415

    if is_old_archive(old):
        made = open_tables(context, new, storage_options)
    else:
        tables = TableOptions(out=new, engine=engine, storage_options=storage_options)
        made = open_pipeline(context, tables)
    done = made.adopt(old, progress(time.monotonic()))
    _show(context, [one._asdict() for one in done], ("name", "rows", "files"))


def _show(
    context: typer.Context, found: Sequence[Mapping[str, Any]], columns: Sequence[str]
) -> None:
    entries: list[Entry] = [dict(one) for one in found]
    output_of(context).entries(entries, columns)
