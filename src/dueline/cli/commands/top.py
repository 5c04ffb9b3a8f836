"""`dueline top`: the store, live, on a whole screen."""

from typing import Annotated

import typer

from dueline.api.connect import mask
from dueline.cli.session import session_of
from dueline.core.durations import parse_span


def top(
    context: typer.Context,
    *,
    every: Annotated[
        str, typer.Option(metavar="TIME", help="How often the picture is taken anew.")
    ] = "1s",
) -> int:
    """Watch the store on a whole screen: throughput, lateness, backlog, workers; q ends it.

    Rates are those of the last minute. Where there is no terminal, one picture is printed.

    Example: dueline top
    """
    from dueline.cli.screen import watch  # noqa: PLC0415  (draws, and is slow to load)

    every_s = max(0.1, parse_span(every) / 1e6)
    session = session_of(context)
    with session.engine() as engine:
        return watch(engine, mask(session.address), every_s)
