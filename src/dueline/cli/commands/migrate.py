"""`dueline migrate`: create the schema of a store."""

import typer

from dueline.cli.output import Output, note
from dueline.cli.session import session_of
from dueline.core.store import Migratable, Migration


def migrate(context: typer.Context) -> None:
    """Create missing keyspaces and tables of a store.

    A Cassandra store needs this once, before its first use; existing tables are not changed. An
    SQLite file is created at its first use. Tables of another program or version are rejected.
    """
    with session_of(context).queues() as queues:
        store = queues.engine.store
        if isinstance(store, Migratable):
            done = store.migrate()
        else:
            done = Migration([], store.describe().get("schema", "none"))
        Output.of(context, queues.engine).entry({"schema": done.version, "made": done.made})
    if not done.made:
        note("The schema is up to date.")
