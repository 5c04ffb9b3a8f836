"""`dueline pipeline replay`: enqueue past jobs again."""

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from dueline.cli.confirm import is_agreed, refuse
from dueline.cli.errors import Exit
from dueline.cli.option_groups import with_option_groups
from dueline.cli.options import DryRunOption, TaskOption, YesOption, option
from dueline.cli.output import Entry, Instant, Output, Part, note
from dueline.cli.pipeline_options import LocalTableOptions, open_pipeline, place, progress
from dueline.cli.session import session_of
from dueline.core.errors import Conflict

if TYPE_CHECKING:
    from dueline.spark.pipeline.replay import Found

SHOWN = 20


@with_option_groups
def replay(
    context: typer.Context,
    *,
    name: Annotated[str, option("NAME", "Name of the replay.", "--name")],
    archive: Annotated[
        list[str] | None, option("DIR", "Read an archive instead; repeatable.")
    ] = None,
    task: TaskOption = None,
    outcome: Annotated[
        list[str] | None, option("WHAT", "Outcome; repeatable; default: done.")
    ] = None,
    tables: LocalTableOptions,
    rate: Annotated[float | None, option("N", "Jobs per second; default: all at once.")] = None,
    yes: YesOption = False,
    dry_run: DryRunOption = False,
) -> int:
    """Enqueue past jobs again with the same arguments.

    A replay of one --name enqueues each job once, even if the command runs again within 30 days.
    Only queues with the history `arguments` record arguments; the output counts and names jobs
    that cannot be replayed. Prints the number of jobs and asks for confirmation.

    Example: dueline pipeline replay --name again --archive october --task tasks.send --rate 50
    """
    since_us, until_us = tables.read()
    made = open_pipeline(context, tables)
    from dueline.spark.pipeline.replay import (  # noqa: PLC0415  (may not be installed)
        chosen_of,
        order_of,
    )

    archives = [place(archived, tables.storage_options) for archived in archive or ()]
    chosen = chosen_of(task, outcome, since_us, until_us)
    with session_of(context).queues() as queues:
        order = order_of(name, queues.engine.time.latest_us(), rate)
        runs = made.replayable(chosen, archives)
        matching = runs.count("replayable")
        _say(runs, matching)
        if not matching and runs.count("jobs"):
            raise Conflict("None of these jobs can be replayed.", hint=_what_to_set(runs))
        if matching and not dry_run and not is_agreed("Enqueue them?", yes=yes):
            return refuse(context, "enqueued", matching)
        added = 0
        if matching and not dry_run:
            added = made.replay(chosen, order, progress(time.monotonic()), archives).added
        Output.of(context, queues.engine).entry(
            {
                "name": name,
                "matching": matching,
                "left_out": runs.count("jobs") - matching,
                "added": added,
                "until": Instant(order.start_us + int(max(matching - 1, 0) * order.gap_us)),
                "dry_run": dry_run,
            },
            parts=_parts(runs),
        )
    return Exit.DONE


def _say(runs: "Found", matching: int) -> None:
    jobs = runs.count("jobs")
    note(f"Matching jobs: {jobs}; of these, {matching} can be replayed.")
    if matching < jobs:
        note(
            f"Omitted: {runs.count('too_large')} whose arguments are too large to record,"
            f" {runs.count('not_kept')} whose arguments were not recorded. {_what_to_set(runs)}"
        )


def _parts(runs: "Found") -> list[Part]:
    kinds: list[Entry] = [kind._asdict() for kind in runs.kinds]
    left_out: list[Entry] = [run._asdict() for run in runs.left_out]
    columns = ("queue", "task", "outcome", "jobs", "replayable", "too_large", "not_kept")
    cannot = Part("cannot", left_out[:SHOWN], ("queue", "job_id", "why"))
    return [Part("kinds", kinds, columns), cannot]


def _what_to_set(runs: "Found") -> str:
    """Return how to record arguments from now on, if that would have helped."""
    names: Sequence[str] = sorted({kind.queue for kind in runs.kinds if kind.not_kept})
    if not names:
        return ""
    return (
        f"Set `dueline queues set {names[0]} --history arguments`: jobs of {', '.join(names)}"
        " enqueued after that can be replayed, if their enqueue events are in the same tables or"
        " archives."
    )
