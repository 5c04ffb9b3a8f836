"""Changes to all jobs that match a filter."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, Final

import typer

from dueline.admin.bulk_runs import BulkRun, Change
from dueline.admin.operations import move_run
from dueline.admin.search import ENDED_STATES, JobFilter
from dueline.cli.confirm import is_agreed, refuse
from dueline.cli.errors import Exit
from dueline.cli.options import BulkOptions, MoveOptions, read_instant
from dueline.cli.output import Entry, Output, note
from dueline.cli.session import session_of
from dueline.core.clock import asked_instant_us, to_datetime
from dueline.core.errors import BadInput
from dueline.jobs.bulk import BulkResult
from dueline.jobs.queue import Queues
from dueline.jobs.queue_moves import REASONS
from dueline.terminal.progress_bars import bar


def like_of(
    ids: Sequence[str] | None, bulk: BulkOptions, *, about: str, with_expired: bool = False
) -> JobFilter:
    """Return the filter of a command that takes either ids or --all-matching.

    Args:
      with_expired: expired jobs that no worker has ended yet can be changed.

    Raises:
      BadInput: the timestamp is invalid, jobs in this state cannot be changed, or the command has
        both ids and --all-matching, neither, or a filter without --all-matching.
    """
    if bulk.state in ENDED_STATES and not (with_expired and bulk.state == "expired"):
        raise BadInput(
            f"Jobs in state {bulk.state} cannot be changed.", hint="Choose another --state."
        )
    before_us = None
    if bulk.due_before is not None:
        before_us = asked_instant_us(read_instant(bulk.due_before), "--due-before")
    like = JobFilter(bulk.state, bulk.queue, bulk.task, bulk.tenant, before_us, bulk.tag)
    if bool(ids) == bulk.every or (like != JobFilter() and not bulk.every):
        raise BadInput(
            "Pass either ids, or --all-matching with optional filters.",
            hint=f"Use `{about} ID...`, or `{about} --all-matching --queue NAME`.",
        )
    return like


def change_matching(
    context: typer.Context,
    like: JobFilter,
    change: Callable[[Queues, int], Change],
    bulk: BulkOptions,
    *,
    words: tuple[str, str],
    how: str = "",
) -> int:
    """Change all jobs that match, page by page, after a confirmation of their number.

    Args:
      change: returns the change, from the timestamp at which the run began. words: the verb and
      its participle: ("cancel", "cancelled"). how: what else identifies this command.
    """
    (verb, past), limit = words, bulk.limit
    with session_of(context).queues() as queues:
        bulk_run = BulkRun(queues.engine, like, f"{verb} {how}")
        count = bulk_run.count(limit)
        matching = count if limit is None else min(count, limit)
        note_matching(bulk_run, "Matching jobs", matching, more=count > matching)
        question = f"{verb.capitalize()} them?"
        if matching and not bulk.dry_run and not is_agreed(question, yes=bulk.yes):
            return refuse(context, past, matching)
        changed = BulkResult()
        if not bulk.dry_run:
            changed = run(bulk_run, change(queues, bulk_run.began_us), verb, matching, limit=limit)
        entry: Entry = {
            "matching": matching,
            past: changed.done,
            "asked_to_stop": changed.asked,
            "left": changed.left,
            "dry_run": bulk.dry_run,
        }
        Output.of(context, queues.engine).entry(entry)
        note_left(verb, changed.left)
    return Exit.DONE


LEFT: Final = {
    "cancel": "they had ended, or another process changed them",
    "retry": "another job has their unique key, they run or expired, their workflow needs them no "
    "more, or another process changed them",
    "reschedule": "they run or had ended, they would expire before, or another process changed "
    "them",
    "delete": "another process retried or deleted them first",
}


def note_left(verb: str, count: int) -> None:
    """Print how many jobs a command has left as they were, and what may be the reasons."""
    if count:
        left = "1 job" if count == 1 else f"{count} jobs"
        note(f"Left {left} unchanged: {LEFT[verb]}. See `dueline jobs explain ID`.")


def note_matching(bulk_run: BulkRun, what: str, matching: int, *, more: bool = False) -> None:
    """Print how many jobs match, and the progress of an interrupted run that continues."""
    note(f"{what}: {matching}{', and more: run this again' if more else ''}.")
    if bulk_run.is_begun:
        began = to_datetime(bulk_run.began_us)
        note(
            f"Resuming the run of {began:%Y-%m-%dT%H:%M:%SZ}, which processed "
            f"{bulk_run.processed} jobs. For jobs enqueued since then, run this again."
        )


def move_matching(context: typer.Context, like: JobFilter, to: str, options: MoveOptions) -> int:
    """Move all jobs of a queue that match, page by page, after a confirmation of their number."""
    limit = options.limit
    with session_of(context).queues() as queues:
        bulk_run, moves = move_run(queues, like, to)
        count = bulk_run.count(limit)
        matching = count if limit is None else min(count, limit)
        note_matching(bulk_run, "Matching jobs", matching, more=count > matching)
        if options.dry_run:
            moves.preview(islice(bulk_run.matching(), limit))
        elif matching and not is_agreed(f"Move them to {to}?", yes=options.yes):
            return refuse(context, "moved", matching)
        else:
            run(bulk_run, moves.move_all, "move", matching, limit=limit)
        entry: Entry = {
            "matching": matching,
            "moved": moves.moved,
            "left": moves.left.total(),
            "left_by_reason": dict(moves.left),
            "dry_run": options.dry_run,
        }
        Output.of(context, queues.engine).entry(entry)
        for reason, count in moves.left.most_common():
            note(f"Left {count} in the queue {like.queue}: {REASONS[reason]}.")
    return Exit.DONE


def run(
    bulk_run: BulkRun, change: Change, verb: str, matching: int, *, limit: int | None = None
) -> BulkResult:
    """Change the jobs and show the progress."""
    changed = BulkResult()
    with bar(verb, matching) as show_done:
        for page in bulk_run.run(change, limit=limit):
            changed = changed.plus(page)
            show_done(sum(changed))
    return changed


def with_options(like: JobFilter, asked: Mapping[str, Any]) -> JobFilter:
    """Return a filter with the values of options that are not None.

    Raises: BadInput: an option and a word exclude each other.
    """
    given = {name: value for name, value in asked.items() if value is not None}
    for name in given:
        if getattr(like, name) is not None:
            word = name.removesuffix("_us")
            raise BadInput(f"An option and the word {word}: exclude each other.", hint="Pass one.")
    return replace(like, **given)
