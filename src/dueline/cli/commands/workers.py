"""`dueline workers`: list live workers."""

import typer

from dueline.cli.commands.queues import worker_entry
from dueline.cli.output import Output, note
from dueline.cli.session import session_of
from dueline.coordination.worker_registry import live_workers

COLUMNS = ("worker", "queues", "held", "running", "slots", "version", "clock_offset", "beat")

workers = typer.Typer(help="Show workers.")


@workers.command("list")
def list_workers(context: typer.Context) -> None:
    """List live workers.

    Shows the queues they serve, the jobs they hold and run, and their clock offset.

    Example: dueline workers list
    """
    with session_of(context).engine() as engine:
        shown = [worker_entry(one) for one in live_workers(engine)]
        Output.of(context, engine).entries(shown, COLUMNS, count=len(shown))
    if not shown:
        note("No live workers.")
