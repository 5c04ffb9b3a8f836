"""Actions on all jobs that match."""

from collections.abc import Callable, Iterator, Sequence

import typer

from dueline.cli.bars import bar
from dueline.cli.consent import is_agreed, refuse
from dueline.cli.failure import Exit
from dueline.cli.options import LIMIT_MAX, State, read_instant
from dueline.cli.output import Entry, Output, note
from dueline.cli.session import session_of
from dueline.clock import asked_instant_us
from dueline.errors import BadInput
from dueline.job import Job
from dueline.mass import Changed
from dueline.queue import Queues
from dueline.search import ENDED_STATES, Like, search

Change = Callable[[Queues, Sequence[Job]], Iterator[Changed]]


def like_of(
    *,
    state: State | None,
    queue: str | None,
    task: str | None,
    tenant: str | None,
    due_before: str | None,
    tag: str | None,
) -> Like:
    """Read what jobs are to be like.

    Raises: BadInput: the instant is none, or the state is one that leaves nothing to change.
    """
    if state in ENDED_STATES:
        raise BadInput(f"Jobs that are {state} cannot be changed.", hint="Choose another --state.")
    before_us = None
    if due_before is not None:
        before_us = asked_instant_us(read_instant(due_before), "--due-before")
    return Like(state, queue, task, tenant, before_us, tag)


def check_which(ids: Sequence[str] | None, like: Like, *, every: bool, about: str) -> None:
    """Make sure that either ids are given, or all that match.

    Raises: BadInput: both, none, or a filter without --all-matching.
    """
    if bool(ids) == every or (like != Like() and not every):
        raise BadInput(
            "Either ids are given, or --all-matching, with which filters may stand.",
            hint=f"Write `{about} ID...`, or `{about} --all-matching --queue NAME`.",
        )


def change_matching(
    context: typer.Context,
    like: Like,
    change: Change,
    *,
    words: tuple[str, str],
    limit: int | None,
    yes: bool,
    dry_run: bool,
) -> int:
    """Change all jobs that match, page by page, after their number was printed and agreed to.

    Args: words: what is done, and what was done: ("cancel", "cancelled").
    """
    verb, past = words
    with session_of(context).queues() as queues:
        found = search(queues, like, limit=limit or LIMIT_MAX)
        rows = found.jobs
        more = ", and more: repeat this" if (found.more or found.is_capped) else ""
        note(f"Jobs that match: {len(rows)}{more}.")
        if rows and not dry_run and not is_agreed(f"{verb.capitalize()} them?", yes=yes):
            return refuse(past, len(rows))
        changed = Changed()
        with bar(verb, len(rows)) as show_done:
            for page in change(queues, rows) if not dry_run else ():
                changed = changed.plus(page)
                show_done(sum(changed))
        entry: Entry = {
            "matching": len(rows),
            past: changed.done,
            "asked_to_stop": changed.asked,
            "left": changed.left,
            "dry_run": dry_run,
        }
        Output.of(context, queues).entry(entry)
    return Exit.DONE
