"""`dueline jobs`: see and change single jobs."""

from collections.abc import Callable, Sequence
from typing import Annotated

import typer

from dueline.cli import entries
from dueline.cli.failure import Exit, show_error
from dueline.cli.options import (
    LIMIT,
    IdArgument,
    IdsArgument,
    LimitOption,
    QueueOption,
    State,
    StateOption,
    TaskOption,
    TenantOption,
    read_instant,
)
from dueline.cli.output import Entry, Output, Part, note
from dueline.cli.session import session_of
from dueline.clock import asked_instant_us
from dueline.errors import BadInput, Conflict, NotFound
from dueline.explain import explain as explain_job
from dueline.handle import parse_id
from dueline.job import JobId
from dueline.lane import living_queue
from dueline.queue import Queues
from dueline.recipes import reports
from dueline.search import ENDED_STATES, Like, attempts_of, search, search_ended
from dueline.span import parse_span

ATTEMPTS_SHOWN = 20

jobs = typer.Typer(help="See and change jobs.")


@jobs.command("list")
def list_jobs(
    context: typer.Context,
    *,
    state: StateOption = None,
    queue: QueueOption = None,
    task: TaskOption = None,
    tenant: TenantOption = None,
    limit: LimitOption = LIMIT,
) -> None:
    """List jobs, those that are touched next first; ended ones by --state, the latest first."""
    like = Like(state, queue, task, tenant)
    with session_of(context).queues() as queues:
        output = Output.of(context, queues)
        now_us = queues.time.latest_us()
        if state in ENDED_STATES:
            past = search_ended(queues, like, limit=limit)
            shown = [entries.of_attempt(one) for one in past.attempts]
            columns, more, is_capped = entries.ENDED_COLUMNS, past.more, past.is_capped
        else:
            rows = search(queues, like, limit=limit)
            shown = [entries.of_row(one, now_us) for one in rows.jobs]
            columns, more, is_capped = entries.LIST_COLUMNS, rows.more, rows.is_capped
        output.entries(shown, columns, count=len(shown), more=more, capped=is_capped)
    tell_rest(len(shown), more=more, is_capped=is_capped)


def tell_rest(count: int, *, more: bool, is_capped: bool) -> None:
    """Say on stderr that a list is empty, or does not hold everything."""
    if is_capped:
        note("Not all jobs were read, there are too many: use --queue, --task or --tenant.")
    elif more:
        note(f"Only {count} are shown; there are more (--limit).")
    elif not count:
        note("There is no such job.")


@jobs.command()
def show(context: typer.Context, job: IdArgument) -> None:
    """Show all that is known of a job: its row, result and attempts."""
    show_job(context, parse_id(job), state=None)


def show_job(context: typer.Context, job_id: JobId, *, state: State | None) -> None:
    """Show a job, and its latest attempts.

    Raises: NotFound: there is none, or it is not in the state that is asked for.
    """
    with session_of(context).queues() as queues:
        output = Output.of(context, queues)
        found = queues.find(job_id)
        if state is not None and found.status != state:
            raise NotFound(
                f"The job {job_id.hex()} is {found.status}, not {state}.",
                hint=f"See `dueline jobs show {job_id.hex()}`.",
            )
        if found.row is not None:
            row = found.row
            shown = entries.of_row(row, queues.time.latest_us()) | entries.body_of(row)
            queue: str | None = living_queue(row.lane.queue)
        else:
            assert found.outcome is not None
            shown, queue = entries.of_outcome(job_id, found.outcome), None
        if (progress := reports.read(queues.store, job_id)) is not None:
            shown["progress"] = entries.of_progress(progress)
        past = attempts_of(queues, job_id, queue, limit=ATTEMPTS_SHOWN)
        attempts = [entries.attempt_entry(one) for one in past.attempts]
        output.entry(shown, parts=[Part("attempts", attempts, entries.ATTEMPT_COLUMNS)])


@jobs.command()
def explain(context: typer.Context, job: IdArgument) -> int:
    """Name the one reason why a job is not running."""
    job_id = parse_id(job)
    with session_of(context).queues() as queues:
        explanation = explain_job(queues, job_id)
        if explanation.reason == "unknown":
            raise NotFound(
                f"No job {job_id.hex()} is known.",
                hint="It ended and its result is no longer kept, or this is another store.",
            )
        entry: Entry = {
            "id": job_id.hex(),
            "reason": explanation.reason,
            "sentence": explanation.sentence,
            "facts": entries.facts_of(explanation.facts),
        }
        Output.of(context, queues).text(explanation.sentence, entry)
    return Exit.DONE


@jobs.command()
def cancel(context: typer.Context, job: IdsArgument) -> int:
    """End waiting jobs, which then never run; ask for the end of running ones."""

    def change(queues: Queues, job_id: JobId) -> str:
        return "cancelled" if queues.cancel(job_id) else "asked to stop"

    return _each(context, job, change)


@jobs.command()
def retry(context: typer.Context, job: IdsArgument) -> int:
    """Run waiting or dead jobs as soon as possible."""

    def change(queues: Queues, job_id: JobId) -> str:
        queues.retry(job_id)
        return "retried"

    return _each(context, job, change)


@jobs.command()
def reschedule(
    context: typer.Context,
    job: IdsArgument,
    *,
    after: Annotated[
        str | None, typer.Option(metavar="TIME", help="Due so long from now: 90s 10m 2h 3d.")
    ] = None,
    due: Annotated[
        str | None,
        typer.Option(metavar="ISO", help="Due at this instant: 2027-01-01T09:00:00+02:00."),
    ] = None,
) -> int:
    """Let waiting jobs be due at another time."""
    if (after is None) == (due is None):
        raise BadInput("Not one of --after and --due is given.", hint="Give one of them.")
    at_us = None if due is None else asked_instant_us(read_instant(due), "--due")
    span_us = 0 if after is None else parse_span(after)

    def change(queues: Queues, job_id: JobId) -> str:
        queues.reschedule(job_id, queues.time.latest_us() + span_us if at_us is None else at_us)
        return "rescheduled"

    return _each(context, job, change)


@jobs.command()
def change(
    context: typer.Context,
    job: IdsArgument,
    *,
    priority: Annotated[int, typer.Option(metavar="N", help="Larger runs first.")],
) -> int:
    """Give waiting jobs another priority."""

    def change(queues: Queues, job_id: JobId) -> str:
        queues.change(job_id, priority=priority)
        return "changed"

    return _each(context, job, change)


def _each(
    context: typer.Context, ids: Sequence[str], change: Callable[[Queues, JobId], str]
) -> int:
    """Change jobs one by one; those that refuse are told of, and give the exit code."""
    job_ids = [parse_id(text) for text in ids]
    code: int = Exit.DONE
    with session_of(context).queues() as queues:
        done = []
        for job_id in job_ids:
            try:
                done.append((job_id, change(queues, job_id)))
            except (NotFound, Conflict) as error:
                failed = show_error(error, about=context.command_path)
                code = code or failed
        shown = [{"id": job_id.hex(), "change": word} for job_id, word in done]
        Output.of(context, queues).entries(shown, ("id", "change"), count=len(done))
    return code
