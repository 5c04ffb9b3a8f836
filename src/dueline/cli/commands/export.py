"""`dueline export` and `dueline import store`: a store as files."""

from pathlib import Path
from typing import Annotated

import typer

from dueline import Dueline
from dueline.admin.exports.exporter import export as export_store
from dueline.admin.exports.files import Reader
from dueline.admin.exports.importer import Importer
from dueline.admin.move import GRACE_US
from dueline.api.connect import check_exists, mask
from dueline.cli.options import argument
from dueline.cli.output import Entry, Output, note
from dueline.cli.session import session_of
from dueline.core.clock import SystemClock

FolderArgument = Annotated[Path, argument("FOLDER", "The folder of the export.")]


def export(context: typer.Context, folder: FolderArgument) -> None:
    """Write all that a store holds into files, which any store can import.

    The store is frozen meanwhile: it accepts and starts no jobs, and jobs that run are waited for.
    If the command is killed, the store goes on after a minute. An existing export is not
    overwritten (exit 5).

    Example: dueline export backups/2027-01-01
    """
    address = session_of(context).address
    check_exists(address)
    app = Dueline(address)
    try:
        manifest = export_store(app.queues.engine, folder, report=note, grace_us=GRACE_US)
    finally:
        app.close()
    records = sum(manifest.counts.values())
    _show(
        context,
        {
            "folder": str(folder),
            "jobs": manifest.counts.get("job", 0),
            "lines": records,
            "digest": manifest.digest,
        },
    )


def import_store(
    context: typer.Context,
    folder: FolderArgument,
    *,
    merge: Annotated[
        bool, typer.Option("--merge", help="Add to a store that is not empty; it wins.")
    ] = False,
) -> None:
    """Import a store from the files of `dueline export`.

    Other processes are refused until the store equals the export. If the command is interrupted,
    run it again to continue. A store that is not empty is refused (exit 5).

    Example: dueline import store backups/2027-01-01
    """
    address = session_of(context).address
    reader = Reader(folder)
    app = Dueline(address)
    try:
        done = Importer(app.queues.engine, reader, report=note, merges=merge).run()
    finally:
        app.close()
    if done.was_done:
        note("This export was imported before; nothing was changed.")
    _show(
        context,
        {
            "store": mask(address),
            "jobs": done.jobs,
            "records": done.records,
            "events": done.events,
            "digest": reader.manifest.digest,
        },
    )


def _show(context: typer.Context, entry: Entry) -> None:
    command: Entry = {"command": context.info_name or ""}
    session = session_of(context)
    Output(session.form, SystemClock().wall_us(), command).entry(entry)
