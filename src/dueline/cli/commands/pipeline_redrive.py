"""`dueline pipeline redrive`: retry dead-letter jobs by their error."""

import time
from typing import Annotated

import typer

from dueline.cli.confirm import is_agreed, refuse
from dueline.cli.errors import Exit
from dueline.cli.option_groups import with_option_groups
from dueline.cli.options import DryRunOption, TaskOption, YesOption, option
from dueline.cli.output import Entry, Output, Part, note
from dueline.cli.pipeline_options import LocalTableOptions, open_pipeline, progress
from dueline.cli.session import session_of

SHOWN = 20


@with_option_groups
def redrive(
    context: typer.Context,
    *,
    task: TaskOption = None,
    error: Annotated[
        str | None, option("TEXT", "Only this error: substring or fingerprint.")
    ] = None,
    tables: LocalTableOptions,
    yes: YesOption = False,
    dry_run: DryRunOption = False,
) -> int:
    """Retry dead-letter jobs by error or period.

    Reads the table silver; fingerprints are those of the table poison. Each death is retried once,
    even if the command runs again. Prints the number of jobs and asks for confirmation (exit 5
    without it).

    Example: dueline pipeline redrive --task tasks.send --error TimeoutError --out lake
    """
    since_us, until_us = tables.read()
    made = open_pipeline(context, tables)
    from dueline.spark.pipeline import dead_jobs as by_death  # noqa: PLC0415  (may not be installed)

    wanted = by_death.Wanted(task=task or "", error=error or "")
    if since_us is not None:
        wanted = wanted._replace(since_us=since_us)
    if until_us is not None:
        wanted = wanted._replace(until_us=until_us)
    deaths = made.deaths(wanted)
    with session_of(context).queues() as queues:
        kinds = by_death.kinds(queues, deaths)
        matching = sum(kind.dead for kind in kinds)
        note(f"Deaths in the tables: {len(deaths)}; jobs still dead from them: {matching}.")
        if matching and not dry_run and not is_agreed("Retry them?", yes=yes):
            return refuse(context, "retried", matching)
        done = 0
        if matching and not dry_run:
            done = by_death.redrive(queues, deaths, progress(time.monotonic()))
        shown: list[Entry] = [kind._asdict() for kind in kinds[:SHOWN]]
        Output.of(context, queues.engine).entry(
            {"deaths": len(deaths), "matching": matching, "redriven": done, "dry_run": dry_run},
            parts=[Part("kinds", shown, ("queue", "task", "error", "deaths", "dead"))],
        )
    return Exit.DONE
