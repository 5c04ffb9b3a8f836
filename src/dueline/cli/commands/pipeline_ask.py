"""`dueline pipeline ask`: three questions about a period."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import typer

from dueline.cli.options import argument, option, read_instant, read_since_us
from dueline.cli.output import Entry, Instant
from dueline.cli.pipeline_options import (
    OUT,
    OutOption,
    StorageOption,
    UntilOption,
    open_tables,
    output_of,
)
from dueline.core.clock import SystemClock, asked_instant_us
from dueline.core.errors import BadInput

COLUMNS = {
    "failures": ("queue", "task", "failed", "attempts", "share", "dead", "error", "last"),
    "waiting": ("queue", "tenant", "started", "mean_s", "longest_s", "over_1s", "share"),
    "costs": ("tenant", "task", "attempts", "run_s", "failed_s"),
}


def ask(
    context: typer.Context,
    question: Annotated[
        Literal["failures", "waiting", "costs"], argument("QUESTION", "What to ask.")
    ],
    *,
    since: Annotated[str, option("DURATION", "Start: a duration before now, or a time.")] = "24h",
    until: UntilOption = None,
    out: OutOption = OUT,
    limit: Annotated[int, option("N", "Maximum number of lines.", min=1)] = 20,
    storage_options: StorageOption = None,
) -> None:
    """Ask the tables which task fails, who waits, or what it cost.

    failures: tasks by failed attempts, with their most frequent error. waiting:
    tenants by how long their jobs waited after they were due. costs: seconds
    that handlers ran, by tenant and task.

    Example: dueline pipeline ask failures --since 2h --out lake
    """
    now_us = SystemClock().wall_us()
    since_us = read_since_us(since, now_us)
    until_us = now_us + 1 if until is None else asked_instant_us(read_instant(until), "--until")
    if since_us >= until_us:
        raise BadInput("--since must be before --until.", hint="Swap them.")
    made = open_tables(context, out, storage_options)
    lines = made.ask(question, since_us=since_us, until_us=until_us)
    entries: list[Entry] = [_shown(line) for line in lines[:limit]]
    output_of(context).entries(entries, COLUMNS[question])


def _shown(line: Mapping[str, Any]) -> Entry:
    """Return a line with rounded numbers and readable times."""
    return {
        name: Instant(value) if name == "last" else _rounded(value) for name, value in line.items()
    }


def _rounded(value: Any) -> Any:  # noqa: ANN401  (a value of a table)
    return round(value, 3) if isinstance(value, float) else value
