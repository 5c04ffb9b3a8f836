"""`dueline migrate`: set a store up."""

import typer

from dueline.cli.output import Output, note
from dueline.cli.session import session_of
from dueline.core.store import Migratable, Migration


def migrate(context: typer.Context) -> None:
    """Make what the store lacks; what is there stays as it is.

    A server's store needs it once, before its first use; a file is made at its first use.
    """
    with session_of(context).queues() as queues:
        store = queues.engine.store
        if isinstance(store, Migratable):
            done = store.migrate()
        else:
            done = Migration([], store.describe().get("schema", "none"))
        Output.of(context, queues.engine).entry({"schema": done.version, "made": done.made})
    if not done.made:
        note("Nothing was missing: the store is set up already.")
