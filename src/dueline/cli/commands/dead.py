"""`dueline dead`: list, retry and delete dead-letter jobs."""

from collections.abc import Sequence
from functools import partial
from typing import Annotated

import typer

from dueline.admin.bulk_runs import BulkRun
from dueline.admin.dead_letters import DeadGroup, dead_groups
from dueline.admin.filters import read_past, written_filter
from dueline.admin.latest import search_latest
from dueline.admin.operations import Operations
from dueline.admin.redrives import PacedRedrive, Redrive, chosen, read_rate, redrives
from dueline.admin.search import JobFilter
from dueline.cli import job_rows
from dueline.cli.bulk_actions import note_left, note_matching, run
from dueline.cli.commands.jobs import note_rest, show_job
from dueline.cli.confirm import is_agreed, refuse
from dueline.cli.errors import Exit
from dueline.cli.job_ids import read_id
from dueline.cli.options import (
    LIMIT,
    DryRunOption,
    IdArgument,
    LimitOption,
    MaybeIdsArgument,
    QueueOption,
    TaskOption,
    TenantOption,
    YesOption,
    option,
)
from dueline.cli.output import Entry, Instant, Output, note
from dueline.cli.session import operator, session_of
from dueline.core.durations import parse_span
from dueline.core.errors import BadInput, Conflict
from dueline.core.job import Job, State
from dueline.jobs.bulk import dead_before, delete_dead, retry_all
from dueline.jobs.queue import Queues
from dueline.terminal.progress_bars import bar

GROUP_COLUMNS = ("jobs", "last", "task", "error", "example")
REDRIVE_COLUMNS = ("redrive", "state", "filter", "rate_per_s", "retried", "matching", "beat", "who")

dead = typer.Typer(help="List, retry and delete dead-letter jobs.")


@dead.command("list")
def list_dead(
    context: typer.Context,
    *,
    queue: QueueOption = None,
    task: TaskOption = None,
    tenant: TenantOption = None,
    error: Annotated[str | None, option("TEXT", "Only errors with this part, in any case.")] = None,
    since: Annotated[
        str | None, option("TIME", "Only those that died since: 10m, 2026-11-29T02:00.")
    ] = None,
    group: Annotated[
        bool, typer.Option("--group", help="Count them by task and error, the most frequent first.")
    ] = False,
    limit: LimitOption = LIMIT,
) -> None:
    """List dead-letter jobs, the latest first.

    With --group, numbers in errors are replaced by N.

    Example: dueline dead list --since 1h --group
    """
    like = JobFilter("dead", queue, task, tenant, error=error)
    with session_of(context).queues() as queues:
        now_us = queues.engine.time.latest_us()
        since_us = 0 if since is None else read_past(since, now_us, "--since")
        output = Output.of(context, queues.engine)
        if group:
            grouped = dead_groups(queues.engine, like, since_us=since_us)
            entries = [_group_entry(dead_group) for dead_group in grouped.groups[:limit]]
            more = len(grouped.groups) > limit
            output.entries(
                entries, GROUP_COLUMNS, count=len(entries), more=more, capped=grouped.is_capped
            )
            note_rest(len(entries), more=more, is_capped=grouped.is_capped)
            return
        rows = search_latest(queues.engine, like, limit=limit)
        jobs = [job for job in rows.jobs if job.at_us >= since_us]
        more = rows.more and len(jobs) == len(rows.jobs)
        is_capped = rows.is_capped and len(jobs) == len(rows.jobs)
        shown = [job_rows.of_row(job, now_us) for job in jobs]
        output.entries(shown, job_rows.DEAD_COLUMNS, count=len(shown), more=more, capped=is_capped)
    note_rest(len(shown), more=more, is_capped=is_capped)


def _group_entry(dead_group: DeadGroup) -> Entry:
    return {
        "jobs": dead_group.count,
        "task": dead_group.task,
        "error": dead_group.error,
        "first": Instant(dead_group.first_us),
        "last": Instant(dead_group.last_us),
        "example": dead_group.example,
        "filter": dead_group.filter,
    }


@dead.command()
def show(context: typer.Context, job: IdArgument) -> None:
    """Show a dead-letter job."""
    show_job(context, job, state="dead")


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
    """Retry dead-letter jobs at once.

    For a rate, use `dueline dead redrive`. Pass ids, filters (--queue, --task, --tenant) or --all.
    Their counts of errors and crashes restart at 0. Without ids, the command prints the number of
    jobs and asks for confirmation.

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
            bulk_run = BulkRun(queues.engine, JobFilter("dead", queue, task, tenant), "retry ")
            matching, count = bulk_run.count(), 0
            note_matching(bulk_run, "Matching dead-letter jobs", matching)
            if matching and not dry_run and not is_agreed("Retry them?", yes=yes):
                return refuse(context, "retried", matching)
            if not dry_run:
                count = run(bulk_run, partial(retry_all, queues), "retry", matching).done
        left = 0 if dry_run else matching - count
        entry = {"matching": matching, "retried": count, "left": left, "dry_run": dry_run}
        Output.of(context, queues.engine).entry(entry)
        note_left("retry", left)
    return Exit.DONE


@dead.command("redrive")
def redrive_paced(
    context: typer.Context,
    *,
    rate: Annotated[str | None, option("RATE", "Jobs in a time: 50/s, 10/m, 600/5m.")] = None,
    every: Annotated[
        bool, typer.Option("--all", help="Redrive all dead-letter jobs of all queues.")
    ] = False,
    queue: QueueOption = None,
    task: TaskOption = None,
    tenant: TenantOption = None,
    stop: Annotated[bool, typer.Option("--stop", help="Stop a running redrive.")] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Resume a stopped redrive.")] = False,
    redrive: Annotated[
        str | None, option("ID", "Redrive of --stop or --resume, if there are several.", "--id")
    ] = None,
    yes: YesOption = False,
) -> int:
    """Retry dead-letter jobs at a rate, or stop or resume that.

    To retry them at once, use `dueline dead retry`.

    Runs until all jobs are retried, or it is stopped: by Ctrl-C, by `--stop` from anywhere, or on
    the dashboard. It retries each job once, however often it is stopped, killed and resumed.
    `--resume --rate` changes the rate.

    Example: dueline dead redrive --queue mail --rate 50/s
    """
    with session_of(context).queues() as queues:
        operations = Operations(queues, operator())
        if stop:
            stopped = operations.stop_redrive(chosen(queues.engine, redrive, to_resume=False).id)
            Output.of(context, queues.engine).entry(redrive_entry(stopped))
            return Exit.DONE
        if resume:
            known = chosen(queues.engine, redrive, to_resume=True)
            like, written = known.like, known.written
            per_second = known.rate if rate is None else read_rate(rate)
        elif rate is None or every == any((queue, task, tenant)):
            raise BadInput(
                "Pass --rate, and either --all or a filter.",
                hint="Use `dueline dead redrive --queue NAME --rate 50/s`.",
            )
        else:
            like, per_second = JobFilter("dead", queue, task, tenant), read_rate(rate)
            words = {"queue": queue, "task": task, "tenant": tenant}
            written = written_filter(**{name: word for name, word in words.items() if word})
        paced = operations.paced_redrive(like, written, per_second)
        note(f"Dead-letter jobs: {paced.matching}, at {per_second:g} a second.")
        if paced.matching and not is_agreed("Redrive them?", yes=yes):
            return refuse(context, "redriven", paced.matching)
        operations.begin_redrive(paced)
        return _redrive(context, queues, paced)


def _redrive(context: typer.Context, queues: Queues, paced: PacedRedrive) -> int:
    """Run a redrive, and show its progress."""
    code = Exit.DONE
    with bar("redriving", paced.redrive.matching) as show_done:
        try:
            for _ in paced.run():
                show_done(paced.redrive.done)
        except KeyboardInterrupt:
            code = Exit.INTERRUPTED
    Output.of(context, queues.engine).entry(redrive_entry(paced.redrive))
    return code


@dead.command("redrives")
def list_redrives(context: typer.Context) -> None:
    """List paced redrives, the latest first.

    Example: dueline dead redrives
    """
    with session_of(context).engine() as engine:
        shown = [redrive_entry(redrive) for redrive in redrives(engine)]
        Output.of(context, engine).entries(shown, REDRIVE_COLUMNS, count=len(shown))
    if not shown:
        note("No redrives.")


def redrive_entry(redrive: Redrive) -> Entry:
    """Return the output of a redrive."""
    return {
        "redrive": redrive.id[:8],
        "state": redrive.state,
        "filter": redrive.written,
        "rate_per_s": redrive.rate,
        "matching": redrive.matching,
        "retried": redrive.done,
        "began": Instant(redrive.began_us),
        "beat": Instant(redrive.beat_us),
        "who": redrive.who,
    }


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
            return refuse(context, "deleted", matching)
        deleted = 0
        if not dry_run:
            with bar("purging dead jobs", matching) as show_done:
                for page in delete_dead(queues, dead_before(queues.engine, queue, before_us)):
                    deleted += page.done
                    show_done(deleted)
        entry: Entry = {"matching": matching, "deleted": deleted, "dry_run": dry_run}
        Output.of(context, queues.engine).entry(entry)
        note_left("delete", 0 if dry_run else max(0, matching - deleted))
    return Exit.DONE


def _named(queues: Queues, ids: Sequence[str]) -> list[Job]:
    """Return dead-letter jobs; all must exist before the first is changed."""
    rows: list[Job] = []
    for job_id in dict.fromkeys(read_id(queues.engine, text) for text in ids):
        job = queues.find(job_id)
        if job.row is None or job.row.state != State.DEAD:
            raise Conflict(
                f"The job {job_id.hex()} is {job.status}, not dead.",
                hint=f"See `dueline jobs explain {job_id.hex()}`.",
            )
        rows.append(job.row)
    return rows
