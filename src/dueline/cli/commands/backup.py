"""`dueline backup` and `dueline restore`."""

from pathlib import Path
from typing import Annotated

import typer

from dueline.api.connect import check_exists, copy_file, mask
from dueline.cli.options import argument
from dueline.cli.output import Entry, Output
from dueline.cli.session import session_of
from dueline.core.clock import SystemClock

FileArgument = Annotated[Path, argument("FILE", "The copy.")]


def backup(context: typer.Context, file: FileArgument) -> None:
    """Copy an SQLite store to a file and check the copy, while processes use the store.

    Nothing is overwritten (exit 5). For Cassandra, use its snapshots.

    Example: dueline backup backups/jobs-2027-01-01.db
    """
    session = session_of(context)
    check_exists(session.address)
    _show(context, {"copy": str(file), "bytes": copy_file(session.address, file, restores=False)})


def restore(context: typer.Context, file: FileArgument) -> None:
    """Copy a backup to the address of the SQLite store and check it.

    Stop the processes of the store and move its files away first: nothing is overwritten (exit 5).

    Example: dueline restore backups/jobs-2027-01-01.db
    """
    address = session_of(context).address
    size = copy_file(address, file, restores=True)
    _show(context, {"store": mask(address), "bytes": size})


def _show(context: typer.Context, entry: Entry) -> None:
    command: Entry = {"command": context.info_name or ""}
    session = session_of(context)
    Output(session.form, SystemClock().wall_us(), command).entry({**entry, "check": "ok"})
