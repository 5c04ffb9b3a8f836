"""`dueline health`: health checks for probes."""

from typing import Annotated

import typer

from dueline.admin.health import elected, is_ready, is_writable, lost_slots
from dueline.cli.errors import Exit
from dueline.cli.options import option
from dueline.cli.output import Entry, Output
from dueline.cli.session import session_of
from dueline.coordination.worker_registry import live_workers
from dueline.core.check import Check
from dueline.core.durations import parse_span
from dueline.core.errors import StoreCorrupt, StoreUnavailable

MAX_AGE = "5m"


def health(
    context: typer.Context,
    *,
    ready: Annotated[
        bool, typer.Option("--ready", help="Check also that jobs are served.")
    ] = False,
    max_age: Annotated[
        str | None, option("DURATION", f"Maximum wait of a ready job ({MAX_AGE}).")
    ] = None,
) -> int:
    """Check that the store can be written, and that no worker has lost all its slots.

    With --ready, also checks that each queue that is not paused has a live worker if jobs are
    ready, that no job waits longer than --max-age, and that schedules create their jobs. Prints
    one line; exits 6 if a check fails.

    Example: dueline health --ready --max-age 10m
    """
    limit_us = parse_span(max_age or MAX_AGE)
    session = session_of(context)
    checks: list[Check] = []
    try:
        with session.engine() as engine:
            output = Output.of(context, engine)
            workers = live_workers(engine)
            checks = [is_writable(engine), elected(engine, workers)]
            checks += lost_slots(engine, workers)
            if ready or max_age is not None:
                checks += is_ready(engine, max_age_us=limit_us)
    except (StoreUnavailable, StoreCorrupt) as error:
        checks = [Check("store", "bad", error.message, error.hint)]
        output = Output(session.form, 0, {"command": "health"})
    bad = [check for check in checks if check.verdict == "bad"]
    text = "; ".join(f"{check.name}: {check.finding}" for check in bad or checks)
    entry: Entry = {
        "healthy": not bad,
        "checks": [
            {"check": check.name, "verdict": check.verdict, "finding": check.finding}
            for check in checks
        ],
    }
    output.text(f"{'bad' if bad else 'good'}: {' '.join(text.split())}", entry)
    return Exit.CHECK if bad else Exit.DONE
