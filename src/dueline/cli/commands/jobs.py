"""`dueline jobs`: show and change jobs."""

import json
from functools import partial
from typing import Annotated, Any

import typer

from dueline.admin import job_lists
from dueline.admin.bulk_runs import Change
from dueline.admin.filters import parse_filter, read_past
from dueline.admin.job_views import details_of, summaries_of
from dueline.admin.key_history import CallFilter, events_of_calls
from dueline.admin.search import ENDED, IN_HISTORY, SCAN_MAX, attempts_of
from dueline.cli import job_rows
from dueline.cli.bulk_actions import change_matching, like_of, with_options
from dueline.cli.commands.job_chunks import chunks
from dueline.cli.commands.job_moves import move
from dueline.cli.errors import Exit
from dueline.cli.job_ids import each, read_id
from dueline.cli.option_groups import with_option_groups
from dueline.cli.options import (
    LIMIT,
    LIMIT_MAX,
    BulkOptions,
    HeadersOption,
    IdArgument,
    IdsArgument,
    LimitOption,
    MaybeIdsArgument,
    QueueOption,
    State,
    StateOption,
    TagOption,
    TagsOption,
    TaskOption,
    TenantOption,
    argument,
    option,
    read_instant,
    read_pairs,
    read_since_us,
)
from dueline.cli.output import Entry, Output, Part, note
from dueline.cli.session import session_of
from dueline.core.clock import SystemClock, asked_instant_us
from dueline.core.codec import encode_result
from dueline.core.durations import instant_text, parse_span
from dueline.core.errors import BadInput, NotFound
from dueline.core.job import JobId
from dueline.core.queue_settings import DEFAULT_QUEUE
from dueline.foresight.until import explain_until
from dueline.jobs import attempt_lines, claim_order, job_pauses
from dueline.jobs.bulk import cancel_all, reschedule_all, retry_all
from dueline.jobs.hand_settlement import settle_dead
from dueline.jobs.history import Follower
from dueline.jobs.queue import Queues

TAIL_EVERY_S = 0.5
NO_MATCH = "No jobs match."
NO_UNENDED_MATCH = (
    "No waiting or running jobs match. For ended ones use --state done, cancelled, expired or "
    "lost; for dead-letter jobs `dueline dead list`."
)

_NO_MATCH = {
    "cancelled": "No jobs match. Jobs that a workflow or a worker cancelled while they waited are "
    'listed only where the queue has history="all".'
}

jobs = typer.Typer(help="Show and change jobs.")
jobs.command()(chunks)
jobs.command()(move)


@jobs.command("list")
def list_jobs(
    context: typer.Context,
    words: Annotated[list[str] | None, argument("FILTER", "Words such as 'priority>3'.")] = None,
    *,
    state: StateOption = None,
    queue: QueueOption = None,
    task: TaskOption = None,
    tenant: TenantOption = None,
    tag: TagOption = None,
    ended: Annotated[bool, typer.Option("--ended", help="Jobs in any ended state.")] = False,
    since: Annotated[str | None, option("TIME", "Ended since: 2h, 2027-01-01T09:00.")] = None,
    until: Annotated[str | None, option("TIME", "Ended before: 1h, 2027-01-01T09:00.")] = None,
    error: Annotated[str | None, option("TEXT", "Part of the error, in any case.")] = None,
    limit: LimitOption = LIMIT,
) -> None:
    """List jobs by time.

    The time of a job is when it is due, or when its lease ends. Jobs in an ended --state come
    from the history, the latest first. `dueline jobs peek` lists ready jobs in starting order.
    FILTER has the words of the dashboard, such as error:Timeout; quote those with < and >.

    Example: dueline jobs list --ended --since 1d --error "timed out" --tag import
    """
    asked: dict[str, Any] = {
        "state": ENDED if ended and state is None else state, "queue": queue, "task": task,
        "tenant": tenant, "tag": tag, "error": error,
    }  # fmt: skip
    with session_of(context).queues() as queues:
        now_us = queues.engine.time.latest_us()
        like = parse_filter(" ".join(words or ()), now_us)
        given = {name: text for name, text in asked.items() if text is not None}
        for name, text in (("since", since), ("until", until)):
            if text is not None:
                given[f"{name}_us"] = read_past(text, now_us, f"--{name}")
        like = with_options(like, given)
        output = Output.of(context, queues.engine)
        page = job_lists.list_jobs(queues.engine, like, limit=limit, most=SCAN_MAX)
        has_ended = like.state in IN_HISTORY
        show = job_rows.of_ended if has_ended else job_rows.of_waiting
        columns = job_rows.ENDED_COLUMNS if has_ended else job_rows.LIST_COLUMNS
        shown, more = [show(job) for job in page.jobs], page.next is not None
        output.entries(shown, columns, count=len(shown), more=more, capped=page.is_capped)
    if page.since_us:
        note(f"Only jobs that ended since {instant_text(page.since_us)} were searched. To go on: "
             "--until with this time.")  # fmt: skip
        return
    empty = NO_UNENDED_MATCH if like.state is None else _NO_MATCH.get(like.state, NO_MATCH)
    note_rest(len(shown), more=more, is_capped=page.is_capped, empty=empty)


@jobs.command()
def peek(
    context: typer.Context,
    *,
    queue: Annotated[str, option("NAME", "Name of the queue.", "-q", "--queue")] = DEFAULT_QUEUE,
    limit: LimitOption = LIMIT,
) -> None:
    """List ready jobs in starting order.

    This is the order of a worker that serves only this queue, with one slot: by priority (with
    aging, if the queue has it), then tenants in turn. Jobs that a pause or a limit holds back are
    omitted.

    Example: dueline jobs peek -q mail
    """
    with session_of(context).queues() as queues:
        (name,) = queues.engine.catalog.chosen(queue)
        now_us = queues.engine.time.latest_us()
        jobs = claim_order.next_jobs(queues.engine, name, now_us, limit=limit + 1)
        summaries = summaries_of(queues.engine, jobs[:limit])
        shown = [job_rows.of_waiting(summary) for summary in summaries]
        more = len(jobs) > limit
        output = Output.of(context, queues.engine)
        output.entries(shown, job_rows.LIST_COLUMNS, count=len(shown), more=more)
    note_rest(len(shown), more=more, is_capped=False)


@jobs.command()
def find(
    context: typer.Context,
    key: Annotated[str, argument("KEY", "Unique key, with its arguments filled in.")],
    *,
    queue: Annotated[str, option("NAME", "Queue of the job.", "-q", "--queue")] = DEFAULT_QUEUE,
) -> None:
    """Show the waiting or running job that holds a unique key.

    Example: dueline jobs find hello:ann@example.org -q mail
    """
    with session_of(context).queues() as queues:
        row = queues.holder(queue, key)
        if row is None:
            raise NotFound(
                f"No waiting or running job of {queue} has the unique key {key!r:.80}.",
                hint="Each queue has its own keys: pass --queue.",
            )
        shown = job_rows.of_details(details_of(queues, row.id))
        Output.of(context, queues.engine).entry(shown)


def note_rest(count: int, *, more: bool, is_capped: bool, empty: str = NO_MATCH) -> None:
    """Print to stderr that a list is empty or incomplete. empty: what is printed if it is empty."""
    if is_capped:
        note("Too many jobs to read all of them: use --queue, --task or --tenant.")
    elif more:
        note(f"Only {count} are shown; raise --limit to see more.")
    elif not count:
        note(empty)


@jobs.command()
def show(context: typer.Context, job: IdArgument) -> None:
    """Show a job: its row, arguments, progress, result and attempts."""
    show_job(context, job, state=None)


def show_job(context: typer.Context, job: str, *, state: State | None) -> None:
    """Show a job and its latest attempts.

    Raises: NotFound: the job does not exist, or is not in this state.
    """
    with session_of(context).queues() as queues:
        job_id = read_id(queues.engine, job)
        details = details_of(queues, job_id)
        current = details.summary.state
        if state is not None and current != state:
            raise NotFound(
                f"The job {job_id.hex()} is {current}, not {state}.",
                hint=f"See `dueline jobs show {job_id.hex()}`.",
            )
        attempts = [job_rows.attempt_entry(attempt) for attempt in details.attempts]
        parts = [Part("attempts", attempts, job_rows.ATTEMPT_COLUMNS)]
        if details.function is not None:
            parts.insert(0, job_rows.calls_part(details.function))
        Output.of(context, queues.engine).entry(job_rows.of_details(details), parts=parts)


@jobs.command()
def history(
    context: typer.Context,
    job: Annotated[str | None, argument("ID", "Id of the job, or its first digits.")] = None,
    *,
    unique: Annotated[str | None, option("KEY", "Jobs of this unique key instead.")] = None,
    key: Annotated[str | None, option("KEY", "Jobs of this order key instead.")] = None,
    header: Annotated[
        str | None, option("NAME=VALUE", "Jobs with this header instead, such as a trace.")
    ] = None,
    queue: QueueOption = None,
    since: Annotated[
        str, option("TIME", "Jobs since a duration before now, or a timestamp.")
    ] = "7d",
) -> None:
    """List the ended attempts and changes of a job, or of the jobs of a key, the first first.

    The fence counts claims, as `ctx.fence` does: one that was released without a call counts, too.
    A change has that of the last claim. The worker's log and `ctx.attempt` count from the failures.
    Keys and headers are found in queues with
    history=all or history=arguments.

    Example: dueline jobs history --unique hello:ann@example.org -q mail
    """
    if (job is None) == (unique is None and key is None and header is None):
        raise BadInput(
            "Pass either an id, or --unique, --key or --header.",
            hint="Use `dueline jobs history ID`, or `dueline jobs history --unique KEY`.",
        )
    if job is None:
        pairs = read_pairs([header], "header") if header is not None else {}
        like = CallFilter(unique, next(iter(pairs.items()), None), key)
        _history_of_calls(context, like, queue, since)
        return
    with session_of(context).queues() as queues:
        job_id = read_id(queues.engine, job)
        past = attempts_of(queues.engine, job_id, None, limit=LIMIT_MAX)
        if not past.attempts:
            queues.find(job_id)
        shown = [job_rows.attempt_entry(attempt) for attempt in reversed(past.attempts)]
        output = Output.of(context, queues.engine)
        columns = (*job_rows.ATTEMPT_COLUMNS, "error")
        output.entries(shown, columns, count=len(shown), capped=past.is_capped)
    if past.is_capped:
        note("Not all of the history was read: it is too long.")
    elif not shown:
        note("No attempt has ended yet, or the queue records no history.")


def _history_of_calls(
    context: typer.Context, like: CallFilter, queue: str | None, since: str
) -> None:
    """List the events of the jobs of a key or header."""
    with session_of(context).queues() as queues:
        since_us = read_since_us(since, queues.engine.time.latest_us())
        past = events_of_calls(queues.engine, like, queue, since_us=since_us, limit=LIMIT_MAX)
        shown = [job_rows.of_tailed(event) for event in reversed(past.attempts)]
        output = Output.of(context, queues.engine)
        columns = ("fence", *job_rows.TAIL_COLUMNS)
        output.entries(shown, columns, count=len(shown), capped=past.is_capped)
    note_rest(len(shown), more=past.more, is_capped=past.is_capped)


@jobs.command()
def logs(context: typer.Context, job: IdArgument) -> None:
    """Print what the handler of a job logged, for each attempt.

    The task says which attempts keep it: `logs="failed"` or `logs="all"`.

    Example: dueline jobs logs 0196f2...
    """
    with session_of(context).queues() as queues:
        job_id = read_id(queues.engine, job)
        logs = attempt_lines.read(queues.engine.store, job_id)
        if not logs:
            queues.find(job_id)
        texts = [f"Attempt {log.fence}\n{log.text}" for log in logs]
        entry: Entry = {
            "job": job_id.hex(),
            "attempts": [
                {"fence": log.fence, "ended_us": log.ended_us, "text": log.text} for log in logs
            ],
        }
        Output.of(context, queues.engine).text("\n".join(texts), entry)
    if not logs:
        note("No lines are kept: see `logs` of the task.")


@jobs.command()
def tail(
    context: typer.Context,
    *,
    queue: Annotated[
        str | None, option("NAME", "Only jobs of this queue.", "-q", "--queue")
    ] = None,
    task: TaskOption = None,
) -> int:
    """Print attempts as they end.

    Continues until Ctrl-C (exit 130). An attempt recorded more than 5 s after its end is missed;
    see `dueline events --follow`.

    Example: dueline jobs tail -q mail -o ndjson
    """
    clock = SystemClock()
    with session_of(context).queues() as queues:
        queues.engine.catalog.chosen(queue)
        output = Output.of(context, queues.engine)
        follower = Follower(queues.engine.store, since_us=queues.engine.time.latest_us())
        note("Printing attempts as they end; press Ctrl-C to stop.")
        try:
            while True:
                names = queues.engine.catalog.names() if queue is None else [queue]
                shards = {name: queues.engine.catalog.settings(name).shards_read for name in names}
                for attempt in follower.read(shards):
                    if task in (None, attempt.task):
                        shown = job_rows.of_tailed(attempt)
                        output.line(shown, job_rows.TAIL_COLUMNS, job_rows.TAIL_WIDTHS)
                clock.sleep(TAIL_EVERY_S)
        except KeyboardInterrupt:
            return Exit.INTERRUPTED


@jobs.command()
def explain(
    context: typer.Context,
    job: IdArgument,
    *,
    until: Annotated[
        str | None, option("DURATION", "Say what would start it within this duration.")
    ] = None,
) -> int:
    """Explain why a job is not running, and all that must change.

    Example: dueline jobs explain 0196f2... --until 10m
    """
    with session_of(context).queues() as queues:
        job_id = read_id(queues.engine, job)
        within_us = None if until is None else parse_span(until)
        explanation = explain_until(queues, job_id, within_us)
        if explanation.reason == "unknown":
            raise NotFound(
                f"No job {job_id.hex()} is known.",
                hint="It ended and its result has expired, or this is another store.",
            )
        entry = job_rows.of_explanation(job_id.hex(), explanation)
        Output.of(context, queues.engine).text(explanation.sentence, entry)
    return Exit.DONE


@jobs.command()
@with_option_groups
def cancel(
    context: typer.Context,
    job: MaybeIdsArgument = None,
    *,
    force: Annotated[
        bool, typer.Option("--force", help="End running jobs; kill their child processes.")
    ] = False,
    bulk: BulkOptions,
) -> int:
    """Cancel waiting jobs and ask running jobs to stop.

    With --force, a running job ends within two seconds. Threads cannot be stopped: if the worker
    has no child processes, the handler runs on without effect on its job.

    Pass ids, or --all-matching with filters: then the command prints the number of jobs and asks
    for confirmation. If it is interrupted, run it again within 24 hours: it resumes where it
    stopped and never processes a job twice.

    Example: dueline jobs cancel --all-matching --queue mail --dry-run
    """
    like = like_of(job, bulk, about=context.command_path, with_expired=True)
    if bulk.state == "dead":
        raise BadInput("Dead-letter jobs cannot be cancelled.", hint="Use `dueline dead purge`.")
    if bulk.every and force:
        raise BadInput("--force needs the ids of jobs.", hint="Omit --all-matching.")
    if bulk.every:
        words = ("cancel", "cancelled")
        return change_matching(
            context, like, lambda queues, _: partial(cancel_all, queues), bulk, words=words
        )

    def change(queues: Queues, job_id: JobId) -> str:
        if queues.cancel(job_id, by_force=force):
            return "cancelled"
        return "ends within two seconds" if force else "asked to stop"

    return each(context, job or (), change)


@jobs.command()
@with_option_groups
def retry(context: typer.Context, job: MaybeIdsArgument = None, *, bulk: BulkOptions) -> int:
    """Run waiting jobs now, or retry dead-letter jobs.

    Scheduled and retrying jobs become due at once. Pass ids, or --all-matching with filters, as for
    `jobs cancel`. Dead-letter jobs match only with --state dead.

    Example: dueline jobs retry --all-matching --state retrying --task tasks.send
    """
    like = like_of(job, bulk, about=context.command_path)
    if bulk.every:
        words = ("retry", "retried")
        return change_matching(
            context, like, lambda queues, _: partial(retry_all, queues), bulk, words=words
        )

    def change(queues: Queues, job_id: JobId) -> str:
        queues.retry(job_id)
        return "retried"

    return each(context, job or (), change)


@jobs.command()
def settle(
    context: typer.Context,
    job: IdsArgument,
    *,
    value: Annotated[str, option("JSON", "The result; default: null.")] = "null",
) -> int:
    """End dead-letter jobs as done, with a result.

    For jobs that are uncertain, or whose work was done in another way. What waits for them goes
    on. `dueline jobs list --state uncertain` lists jobs that ended in a section that must not
    repeat.

    Example: dueline jobs settle 0196f2... --value '{"charged": true}'
    """
    try:
        result = encode_result(json.loads(value), "the job")
    except ValueError as error:
        raise BadInput(f"--value is not JSON: {error}.", hint="Use --value '\"text\"'.") from error

    def change(queues: Queues, job_id: JobId) -> str:
        settle_dead(queues, job_id, result)
        return "settled"

    return each(context, job, change)


@jobs.command()
def pause(context: typer.Context, job: IdsArgument) -> int:
    """Let no worker claim waiting jobs until they are resumed.

    They keep their places and unique keys, and are listed with --state paused.

    Example: dueline jobs pause 0196f2...
    """

    def change(queues: Queues, job_id: JobId) -> str:
        job_pauses.pause(queues, job_id)
        return "paused"

    return each(context, job, change)


@jobs.command()
def resume(context: typer.Context, job: IdsArgument) -> int:
    """Return paused jobs to their places.

    Example: dueline jobs resume 0196f2...
    """

    def change(queues: Queues, job_id: JobId) -> str:
        job_pauses.resume(queues, job_id)
        return "resumed"

    return each(context, job, change)


@jobs.command()
@with_option_groups
def reschedule(
    context: typer.Context,
    job: MaybeIdsArgument = None,
    *,
    after: Annotated[
        str | None, option("DURATION", "Due after this duration: 90s, 10m, 2h, 3d.")
    ] = None,
    due: Annotated[
        str | None, option("TIMESTAMP", "Due at this time: 2027-01-01T09:00:00+02:00.")
    ] = None,
    bulk: BulkOptions,
) -> int:
    """Change the due time of waiting jobs.

    Pass ids, or --all-matching with filters, as for `jobs cancel`. The latter leaves jobs that
    would expire before that time.

    Example: dueline jobs reschedule --all-matching --queue mail --after 10m
    """
    if (after is None) == (due is None):
        raise BadInput("Pass exactly one of --after and --due.", hint="Use --after 10m.")
    at_us = None if due is None else asked_instant_us(read_instant(due), "--due")
    span_us = 0 if after is None else parse_span(after)
    like = like_of(job, bulk, about=context.command_path)
    if bulk.state == "dead":
        raise BadInput("Dead-letter jobs have no due time.", hint="Use `dueline dead retry`.")

    if bulk.every:

        def change_all(queues: Queues, began_us: int) -> Change:
            chosen_us = began_us + span_us if at_us is None else at_us
            return lambda rows: reschedule_all(queues, rows, chosen_us)

        words = ("reschedule", "rescheduled")
        how = f"{after} {at_us}"
        return change_matching(context, like, change_all, bulk, words=words, how=how)

    def change(queues: Queues, job_id: JobId) -> str:
        chosen_us = queues.engine.time.latest_us() + span_us if at_us is None else at_us
        queues.reschedule(job_id, chosen_us)
        return "rescheduled"

    return each(context, job or (), change)


@jobs.command()
def change(
    context: typer.Context,
    job: IdsArgument,
    *,
    priority: Annotated[int | None, option("N", "New priority; larger runs first.")] = None,
    tag: TagsOption = None,
    no_tags: Annotated[bool, typer.Option("--no-tags", help="Remove all tags.")] = False,
    header: HeadersOption = None,
    no_headers: Annotated[bool, typer.Option("--no-headers", help="Remove all headers.")] = False,
) -> int:
    """Change the priority, the tags or the headers of waiting jobs.

    New tags replace all present ones, and new headers too.

    Example: dueline jobs change 0196f2... --priority 5
    """
    if tag and no_tags:
        raise BadInput("--tag and --no-tags exclude each other.", hint="Pass one of them.")
    if header and no_headers:
        raise BadInput("--header and --no-headers exclude each other.", hint="Pass one of them.")
    tags = [] if no_tags else tag or None
    headers = {} if no_headers else read_pairs(header or (), "header") or None

    def change(queues: Queues, job_id: JobId) -> str:
        queues.change(job_id, priority=priority, tags=tags, headers=headers)
        return "changed"

    return each(context, job, change)
