"""`dueline pipeline forget`: remove personal data from the tables."""

import time
from typing import Annotated

import typer

from dueline.cli.confirm import is_agreed, refuse
from dueline.cli.errors import Exit
from dueline.cli.options import DryRunOption, TenantOption, YesOption, option
from dueline.cli.output import Entry, note
from dueline.cli.pipeline_options import (
    OUT,
    LocalTableOptions,
    OutOption,
    QueuesOption,
    StorageOption,
    open_pipeline,
    output_of,
    place,
    progress,
)
from dueline.core.errors import BadInput


def forget(
    context: typer.Context,
    *,
    job: Annotated[
        list[str] | None, option("ID", "A job, or its job_id in the data; repeatable.", "--job")
    ] = None,
    tenant: TenantOption = None,
    key: Annotated[str | None, option("KEY", "The dedupe_key of a written row.", "--key")] = None,
    archive: Annotated[list[str] | None, option("DIR", "Also this archive; repeatable.")] = None,
    out: OutOption = OUT,
    queue: QueuesOption = None,
    yes: YesOption = False,
    dry_run: DryRunOption = False,
    storage_options: StorageOption = None,
) -> int:
    """Remove arguments, results and errors from the tables.

    Rows stay, without what is personal, so counts and audits stay right. Files of earlier
    versions are deleted, and the remaining ones searched. An interrupted run is repeated. The
    store itself is not changed: delete the jobs and their history there first.

    Example: dueline pipeline forget --tenant acme --archive october --out lake
    """
    if (bool(job), bool(tenant), bool(key)).count(True) != 1:
        raise BadInput(
            "Exactly one of --job, --tenant and --key is needed.", hint="Pass --tenant acme."
        )
    tables = LocalTableOptions(out=out, queue=queue, storage_options=storage_options)
    made = open_pipeline(context, tables, needs_store=False)
    from dueline.spark.pipeline.erasure import Subject  # noqa: PLC0415  (may not be installed)

    subject = Subject(tuple(job or ()), tenant or "", key or "")
    archives = [place(address, storage_options) for address in archive or ()]
    say = progress(time.monotonic())
    changes = made.forget(subject, say, archives, dry_run=True)
    count = sum(table.rows for table in changes)
    if not dry_run:
        if not is_agreed(f"Remove what is personal from {count:,} rows?", yes=yes):
            return refuse(context, "changed", count)
        changes = made.forget(subject, say, archives)
    entries: list[Entry] = [table._asdict() for table in changes]
    output_of(context).entries(entries, ("table", "rows", "removed", "files"), out=out)
    if not dry_run:
        note("Nothing of it is left in these tables. The store, its backups, and reports stay.")
    return Exit.DONE
