"""`dueline events`: print the history of jobs."""

from typing import Annotated

import typer

from dueline.cli import job_rows
from dueline.cli.errors import Exit
from dueline.cli.options import option, read_since_us
from dueline.cli.output import Output
from dueline.cli.session import session_of
from dueline.core.clock import SystemClock
from dueline.jobs.event_reader import EventReader

EVERY_S = 0.5
SINCE = "1h"


def events(
    context: typer.Context,
    *,
    queue: Annotated[
        str | None, option("NAME", "Only jobs of this queue.", "-q", "--queue")
    ] = None,
    since: Annotated[
        str, option("TIME", "Start: a duration before now (10m, 2d) or a timestamp.")
    ] = SINCE,
    cursor: Annotated[
        str | None, option("CURSOR", "Continue after the event that had this cursor.")
    ] = None,
    follow: Annotated[
        bool, typer.Option("-f", "--follow", help="Continue until Ctrl-C (exit 130).")
    ] = False,
) -> int:
    """Print the history of jobs in order.

    Prints attempts, and in queues with history=all also new jobs and changes. No event is missed,
    even if it was written late.

    With -o json, ndjson or csv, some events have a cursor. A later --cursor, which replaces
    --since, continues exactly after them.

    Example: dueline events --follow -q mail -o ndjson
    """
    clock = SystemClock()
    with session_of(context).engine() as engine:
        since_us = read_since_us(since, engine.time.latest_us())
        reader = EventReader(engine, clock=clock, queue=queue, since_us=since_us, cursor=cursor)
        output = Output.of(context, engine)
        try:
            while True:
                events = reader.read()
                for number, event in enumerate(events, 1):
                    place = reader.cursor if number == len(events) else None
                    shown = {**job_rows.of_tailed(event), "cursor": place}
                    output.line(shown, job_rows.TAIL_COLUMNS, job_rows.TAIL_WIDTHS)
                if not events:
                    if not follow:
                        return Exit.DONE
                    clock.sleep(EVERY_S)
        except KeyboardInterrupt:
            return Exit.INTERRUPTED
