"""`dueline migrate`: bring a store to this version."""

import typer

from dueline.cli.output import Output, note
from dueline.cli.session import session_of
from dueline.core.store import Migratable, Migration


def migrate(context: typer.Context) -> None:
    """Create missing keyspaces and tables of a store, and use the features of this version.

    A Cassandra store needs this once, before its first use; existing tables are not changed. An
    SQLite file is created at its first use. Tables of another program or version are rejected.

    Run it after an upgrade, when no process of an older version uses the store: older versions
    refuse a store with features that they do not know.
    """
    with session_of(context).queues(creates=True) as queues:
        store = queues.engine.store
        if isinstance(store, Migratable):
            done = store.migrate()
        else:
            done = Migration([], store.describe().get("schema", "none"))
        features = [f"feature {feature}" for feature in queues.engine.catalog.upgrade()]
        made = [*done.made, *features]
        Output.of(context, queues.engine).entry({"schema": done.version, "made": made})
    if not made:
        note("The schema is up to date.")
