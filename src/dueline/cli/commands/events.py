"""`dueline events`: print the history of jobs."""

from typing import Annotated

import typer

from dueline.cli import job_rows
from dueline.cli.errors import Exit
from dueline.cli.options import option
from dueline.cli.output import Output
from dueline.cli.session import session_of
from dueline.core.clock import SystemClock
from dueline.core.durations import parse_span
from dueline.jobs.history import Events

EVERY_S = 0.5


def events(
    context: typer.Context,
    *,
    queue: Annotated[
        str | None, option("NAME", "Only jobs of this queue.", "-q", "--queue")
    ] = None,
    since: Annotated[str, option("DURATION", "Start of the period before now: 10m, 2d.")] = "1h",
    follow: Annotated[
        bool, typer.Option("-f", "--follow", help="Continue until Ctrl-C (exit 130).")
    ] = False,
) -> int:
    """Print the history of jobs in order.

    Prints attempts, and in queues with history=all also new jobs and changes. No event is missed,
    even if it was written late.

    Example: dueline events --follow -q mail -o ndjson
    """
    clock = SystemClock()
    with session_of(context).engine() as engine:
        engine.catalog.chosen(queue)
        output = Output.of(context, engine)
        since_us = engine.time.latest_us() - parse_span(since)
        reader = Events(engine.store, since_us=since_us, time=engine.time, clock=clock)
        try:
            while True:
                names = engine.catalog.names() if queue is None else [queue]
                shards = {name: engine.catalog.settings(name).shards_read for name in names}
                for one in reader.read(shards):
                    shown = job_rows.of_tailed(one)
                    output.line(shown, job_rows.TAIL_COLUMNS, job_rows.TAIL_WIDTHS)
                if not follow:
                    return Exit.DONE
                clock.sleep(EVERY_S)
        except KeyboardInterrupt:
            return Exit.INTERRUPTED
