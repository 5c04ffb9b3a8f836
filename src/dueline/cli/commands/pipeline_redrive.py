"""`dueline pipeline redrive`: dead jobs run again, by how they died."""

import time
from typing import Annotated

import typer

from dueline.cli.confirm import is_agreed, refuse
from dueline.cli.errors import Exit
from dueline.cli.option_groups import with_option_groups
from dueline.cli.options import DryRunOption, TaskOption, YesOption
from dueline.cli.output import Entry, Output, Part, note
from dueline.cli.pipeline_options import (
    OUT,
    ClusterOptions,
    Engine,
    EngineOption,
    OutOption,
    PeriodOptions,
    QueuesOption,
    open_pipeline,
    progress,
)
from dueline.cli.session import session_of

SHOWN = 20


@with_option_groups
def redrive(
    context: typer.Context,
    *,
    out: OutOption = OUT,
    queue: QueuesOption = None,
    task: TaskOption = None,
    error: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="Only this error: a part of it, or as `poison` has it."),
    ] = None,
    period: PeriodOptions,
    yes: YesOption = False,
    dry_run: DryRunOption = False,
    engine: EngineOption = Engine.ARROW,
    cluster: ClusterOptions,
) -> int:
    """Run dead jobs again that died of an error, or in a period, as the tables tell.

    Each death is redriven once, however often this is repeated. The number is printed first, and
    somebody has to say yes.

    Example: dueline pipeline redrive --task tasks.send --error TimeoutError --out lake
    """
    since_us, until_us = period.read()
    made = open_pipeline(context, out, queue, engine, cluster)
    from dueline.spark.pipeline import dead_jobs as by_death  # noqa: PLC0415  (may not be installed)

    wanted = by_death.Wanted(task=task or "", error=error or "")
    if since_us is not None:
        wanted = wanted._replace(since_us=since_us)
    if until_us is not None:
        wanted = wanted._replace(until_us=until_us)
    deaths = made.deaths(wanted)
    with session_of(context).queues() as queues:
        kinds = by_death.kinds(queues, deaths)
        matching = sum(one.dead for one in kinds)
        note(f"Deaths in the tables: {len(deaths)}; jobs that are still dead so: {matching}.")
        if matching and not dry_run and not is_agreed("Run them again?", yes=yes):
            return refuse("run again", matching)
        done = 0
        if matching and not dry_run:
            done = by_death.redrive(queues, deaths, progress(time.monotonic()))
        shown: list[Entry] = [one._asdict() for one in kinds[:SHOWN]]
        Output.of(context, queues.engine).entry(
            {"deaths": len(deaths), "matching": matching, "redriven": done, "dry_run": dry_run},
            parts=[Part("kinds", shown, ("queue", "task", "error", "deaths", "dead"))],
        )
    return Exit.DONE
