"""`dueline move`: move a store to another database."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from dueline import Dueline
from dueline.admin.move import Moved, Mover
from dueline.admin.move_audit import MoveAudit
from dueline.admin.move_plan import rehearse
from dueline.api.connect import check_exists, mask, missing_file, sqlite_path
from dueline.cli.errors import Exit
from dueline.cli.options import option
from dueline.cli.output import Entry, Output, Part, note
from dueline.cli.session import session_of
from dueline.core.clock import SECOND_US, SystemClock
from dueline.core.errors import BadInput
from dueline.jobs.queue import Queues

COLUMNS = ("what", "many", "verdict", "why")
SHOWN_EVERY_US = 5 * SECOND_US


def move(
    context: typer.Context,
    *,
    source: Annotated[str, option("URL", "The old store.", "--from")],
    target: Annotated[str, option("URL", "The new store.", "--to")],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what would move, and what would not.")
    ] = False,
    leave_streams: Annotated[
        bool, typer.Option("--leave-streams", help="Leave streams in the old store.")
    ] = False,
    audit: Annotated[
        bool,
        typer.Option("--audit", help="Prove the move, now or later, by both histories."),
    ] = False,
) -> int:
    """Move all jobs of a store to another one, while producers and workers run.

    From its start on, processes that use the old store are refused with the new address; workers
    finish what they run. Jobs that run are waited for. Each job is in one of the stores. If the
    command is interrupted, run it again to continue. Exits 5 if something cannot be moved;
    nothing was changed then. Exits 6 if --audit finds a job that is lost, doubled or changed.

    Example: dueline move --from sqlite:///jobs.db --to postgresql://user:password@host/shop
    """
    if audit and dry_run:
        raise BadInput("--audit and --dry-run exclude each other.", hint="Pass one of them.")
    clock = SystemClock()
    is_new = dry_run and missing_file(target) is not None  # an empty file, then
    with _opened(source) as old, _opened("memory://" if is_new else target, creates=True) as new:
        mover = Mover(
            old, new, (_name_of(source), _name_of(target)), clock=clock, report=_Reporter(clock)
        )
        output = Output(session_of(context).form, clock.wall_us(), {"command": "move"})
        if dry_run:
            plan = rehearse(
                old.engine, new.engine, is_begun=mover.is_begun(), leave_streams=leave_streams
            )
            entries: list[Entry] = [line._asdict() for line in plan.lines]
            output.entries(entries, COLUMNS)
            return Exit.REFUSED if plan.refusals() else Exit.DONE
        moved = None
        if not (audit and mover.is_done()):
            moved = mover.run(leave_streams=leave_streams)
        entry: Entry = {} if moved is None else {"jobs": moved.jobs, "results": moved.results}
        if not audit:
            output.entry({**entry, "store": mask(target)})
            return Exit.DONE
        said = mover.audit()
        output.entry({**entry, "store": mask(target), "moved": said.moved}, parts=_parts(said))
        return Exit.CHECK if said.has_failed else Exit.DONE


def _parts(said: MoveAudit) -> list[Part]:
    """Return the tables of an audit."""
    places: list[Entry] = [
        {"place": place, "jobs": many} for place, many in sorted(said.jobs.items())
    ]
    broken: list[Entry] = [
        {"words": words, "jobs": many} for words, many in sorted(said.counts.items())
    ]
    findings: list[Entry] = [finding._asdict() for finding in said.findings]
    return [
        Part("places", places, ("place", "jobs")),
        Part("counts", broken, ("words", "jobs")),
        Part("findings", findings, ("queue", "verdict", "job_id", "words")),
        Part("not_known", [{"not_known": words} for words in said.not_known], ("not_known",)),
    ]


@contextmanager
def _opened(url: str, *, creates: bool = False) -> Iterator[Queues]:
    """Open a store while the block runs."""
    app = Dueline(url)
    try:
        _ = app.store  # checks the address
        if not creates:
            check_exists(url)
        yield app.queues
    finally:
        app.close()


def _name_of(url: str) -> str:
    """Return the address by which other processes find the store, without its password."""
    if not url.startswith("sqlite:"):
        return mask(url)
    query = url.partition("?")[1:]
    return f"sqlite:///{sqlite_path(url).absolute()}{''.join(query)}"


class _Reporter:
    """Prints each new stage, and what was done every few seconds."""

    def __init__(self, clock: SystemClock) -> None:
        self._clock = clock
        self._last: tuple[str, int] = ("", 0)

    def __call__(self, text: str, moved: Moved) -> None:
        now_us = self._clock.monotonic_us()
        if text == self._last[0] and now_us - self._last[1] < SHOWN_EVERY_US:
            return
        self._last = (text, now_us)
        left = f", {moved.waiting} left" if moved.waiting else ""
        waits = f"; waiting for {moved.waits_for}" if moved.waits_for else ""
        note(f"{text} ({moved.jobs} moved{left}{waits})")
