"""`dueline top`: a live view of a store."""

from typing import Annotated

import typer

from dueline.api.connect import mask
from dueline.cli.options import option
from dueline.cli.session import session_of
from dueline.core.durations import parse_span


def top(
    context: typer.Context, *, every: Annotated[str, option("DURATION", "Refresh interval.")] = "1s"
) -> int:
    """Show throughput, start latency, backlog and workers live.

    Rates are those of the last minute. Of a queue up to 10,000 jobs are read, so that the screen
    costs the store little: more are shown as 10,000+, and `dueline stats` counts them. Press q to
    quit. Without a terminal, the screen is printed once.

    Example: dueline top
    """
    from dueline.cli.screen import watch  # noqa: PLC0415  (slow to load)

    every_s = max(0.1, parse_span(every) / 1e6)
    session = session_of(context)
    with session.engine() as engine:
        return watch(engine, mask(session.address), every_s)
