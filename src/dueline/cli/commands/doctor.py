"""`dueline doctor`: diagnose a store."""

from typing import Annotated

import typer

from dueline.admin.health import examine
from dueline.cli.commands.queues import WORKER_COLUMNS, worker_entry
from dueline.cli.errors import Exit, say_failure
from dueline.cli.options import option
from dueline.cli.output import Output, Part
from dueline.cli.session import session_of
from dueline.core.durations import parse_span

TIME = "10s"


def doctor(
    context: typer.Context,
    *,
    time: Annotated[
        str | None, option("DURATION", f"Maximum duration of the index check ({TIME}).")
    ] = None,
) -> int:
    """Diagnose the store, clocks, workers and queues.

    Also prints what the store guarantees. In an SQLite file all indexes are compared with their
    tables, within --time. Exits 6 if something is wrong.

    Example: dueline doctor --time 10m
    """
    compare_us = parse_span(time or TIME)
    with session_of(context).engine() as engine:
        report = examine(engine, compare_us=compare_us)
        checks = [
            {"check": check.name, "verdict": check.verdict, "finding": check.finding}
            for check in report.checks
        ]
        store = [{"store": name, "answer": text} for name, text in report.store.items()]
        workers = [worker_entry(worker) for worker in report.workers]
        parts = [
            Part("store", store, ("store", "answer")),
            Part("checks", checks, ("check", "verdict", "finding")),
            Part("workers", workers, WORKER_COLUMNS),
        ]
        output = Output.of(context, engine)
        output.tables(parts)
        output.data({"store": report.store, "checks": checks, "workers": workers})
    for check in report.checks:
        if check.verdict != "good":
            say_failure(
                f"{check.name}: {check.verdict}",
                why=check.finding,
                attempt=check.advice,
                code=Exit.CHECK,
            )
    return Exit.CHECK if report.is_bad() else Exit.DONE
