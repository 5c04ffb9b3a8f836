"""`dueline dead`: list, retry and delete dead-letter jobs."""

from collections.abc import Sequence
from functools import partial
from typing import Annotated

import typer

from dueline.admin.bulk_runs import BulkRun
from dueline.admin.search import JobFilter, search
from dueline.cli import job_rows
from dueline.cli.bulk_actions import note_matching, run
from dueline.cli.commands.jobs import note_rest, read_id, show_job
from dueline.cli.confirm import is_agreed, refuse
from dueline.cli.errors import Exit
from dueline.cli.options import (
    LIMIT,
    DryRunOption,
    IdArgument,
    LimitOption,
    MaybeIdsArgument,
    QueueOption,
    State,
    TaskOption,
    TenantOption,
    YesOption,
    option,
)
from dueline.cli.output import Entry, Output, note
from dueline.cli.progress_bar import bar
from dueline.cli.session import session_of
from dueline.core.durations import parse_span
from dueline.core.errors import BadInput, Conflict
from dueline.core.job import Job
from dueline.core.job import State as RowState
from dueline.jobs.bulk import dead_before, drop_dead, retry_all
from dueline.jobs.queue import Queues

dead = typer.Typer(help="List, retry and delete dead-letter jobs.")


@dead.command("list")
def list_dead(
    context: typer.Context,
    *,
    queue: QueueOption = None,
    task: TaskOption = None,
    tenant: TenantOption = None,
    limit: LimitOption = LIMIT,
) -> None:
    """List dead-letter jobs, the oldest first."""
    with session_of(context).queues() as queues:
        rows = search(queues.engine, JobFilter(State.DEAD, queue, task, tenant), limit=limit)
        now_us = queues.engine.time.latest_us()
        shown = [job_rows.of_row(one, now_us) for one in rows.jobs]
        Output.of(context, queues.engine).entries(
            shown, job_rows.DEAD_COLUMNS, count=len(shown), more=rows.more, capped=rows.is_capped
        )
    note_rest(len(shown), more=rows.more, is_capped=rows.is_capped)


@dead.command()
def show(context: typer.Context, job: IdArgument) -> None:
    """Show a dead-letter job."""
    show_job(context, job, state=State.DEAD)


@dead.command()
def retry(
    context: typer.Context,
    job: MaybeIdsArgument = None,
    *,
    every: Annotated[
        bool, typer.Option("--all", help="Retry all dead-letter jobs of all queues.")
    ] = False,
    queue: QueueOption = None,
    task: TaskOption = None,
    tenant: TenantOption = None,
    yes: YesOption = False,
    dry_run: DryRunOption = False,
) -> int:
    """Retry dead-letter jobs.

    Pass ids, filters (--queue, --task, --tenant) or --all. Their counts of errors and crashes
    restart at 0. Without ids, the command prints the number of jobs and asks for confirmation.

    Example: dueline dead retry --task tasks.send --yes
    """
    is_mass = every or any((queue, task, tenant))
    if is_mass == bool(job):
        raise BadInput(
            "Pass either ids, or --all or a filter.",
            hint="Use `dueline dead retry ID...`, or `dueline dead retry --queue NAME`.",
        )
    with session_of(context).queues() as queues:
        if job:
            rows = _named(queues, job)
            matching, count = len(rows), 0 if dry_run else queues.retry_all(rows)
        else:
            bulk_run = BulkRun(queues.engine, JobFilter(State.DEAD, queue, task, tenant), "retry ")
            matching, count = bulk_run.count(), 0
            note_matching(bulk_run, "Matching dead-letter jobs", matching)
            if matching and not dry_run and not is_agreed("Retry them?", yes=yes):
                return refuse("retried", matching)
            if not dry_run:
                count = run(bulk_run, partial(retry_all, queues), "retry", matching).done
        entry = {"matching": matching, "retried": count, "dry_run": dry_run}
        Output.of(context, queues.engine).entry(entry)
    return Exit.DONE


@dead.command()
def purge(
    context: typer.Context,
    *,
    older_than: Annotated[str, option("DURATION", "Minimum age: 90s, 12h, 30d.")],
    queue: QueueOption = None,
    yes: YesOption = False,
    dry_run: DryRunOption = False,
) -> int:
    """Delete old dead-letter jobs.

    Deleted jobs cannot be retried. The command prints their number and asks for confirmation.

    Example: dueline dead purge --older-than 30d
    """
    span_us = parse_span(older_than)
    with session_of(context).queues() as queues:
        before_us = queues.engine.time.latest_us() - span_us
        matching = sum(1 for _ in dead_before(queues.engine, queue, before_us))
        note(f"Matching dead-letter jobs: {matching}.")
        if matching and not dry_run and not is_agreed("Delete them?", yes=yes):
            return refuse("deleted", matching)
        deleted = 0
        if not dry_run:
            with bar("purging dead jobs", matching) as show_done:
                for page in drop_dead(queues.engine, dead_before(queues.engine, queue, before_us)):
                    deleted += page.done
                    show_done(deleted)
        entry: Entry = {"matching": matching, "deleted": deleted, "dry_run": dry_run}
        Output.of(context, queues.engine).entry(entry)
    return Exit.DONE


def _named(queues: Queues, ids: Sequence[str]) -> list[Job]:
    """Return dead-letter jobs; all must exist before the first is changed."""
    rows: list[Job] = []
    for job_id in dict.fromkeys(read_id(queues.engine, text) for text in ids):
        found = queues.find(job_id)
        if found.row is None or found.row.state != RowState.DEAD:
            raise Conflict(
                f"The job {job_id.hex()} is {found.status}, not dead.",
                hint=f"See `dueline jobs explain {job_id.hex()}`.",
            )
        rows.append(found.row)
    return rows
