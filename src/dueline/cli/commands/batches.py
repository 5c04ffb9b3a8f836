"""`dueline batches`: show, watch and change batches."""

from itertools import islice
from typing import Annotated

import typer

from dueline.api.batch import Batch, glance
from dueline.api.batches import batch_named
from dueline.batches import records
from dueline.cli.options import LIMIT, DryRunOption, LimitOption, argument, option
from dueline.cli.output import Entry, Instant, Output, Part, Value, note
from dueline.cli.session import session_of
from dueline.core.clock import SECOND_US, SystemClock
from dueline.core.durations import parse_span
from dueline.jobs.queue import Queues

COLUMNS = ("batch", "task", "queue", "items", "left", "done", "dead", "cancelled", "begun")
FAILURE_COLUMNS = ("item", "id", "state", "error")
FAILURES_SHOWN = 20
TIMED_OUT = 124

batches = typer.Typer(help="Show, watch and change batches.")

NameArgument = Annotated[str, argument("NAME", "Name of the batch.")]


@batches.command("list")
def list_batches(context: typer.Context, *, limit: LimitOption = LIMIT) -> None:
    """List batches with their job counts.

    Example: dueline batches list
    """
    with session_of(context).queues() as queues:
        listed = records.listed(queues.engine.store)
        shown = [_entry(batch, _handle(queues, batch)) for batch in islice(listed, limit)]
        more = next(listed, None) is not None
        Output.of(context, queues.engine).entries(shown, COLUMNS, count=len(shown), more=more)
    if more:
        note(f"Only {len(shown)} are shown; raise --limit to see more.")
    elif not shown:
        note('No batches. Store one with task.map(items, name="...").')


@batches.command()
def show(context: typer.Context, name: NameArgument) -> None:
    """Show a batch and its first failed jobs.

    Example: dueline batches show photos
    """
    with session_of(context).queues() as queues:
        batch = batch_named(queues, name)
        handle = _handle(queues, batch)
        failed = islice(glance(handle)[1], FAILURES_SHOWN)
        lines: list[Entry] = [
            {"item": item.index, "id": item.job.id, "state": item.status, "error": item.error}
            for item in failed
        ]
        Output.of(context, queues.engine).entry(
            _entry(batch, handle), parts=[Part("failures", lines, FAILURE_COLUMNS)]
        )


@batches.command()
def watch(
    context: typer.Context,
    name: NameArgument,
    *,
    timeout: Annotated[str | None, option("DURATION", "Maximum duration: 90s, 10m, 2h.")] = None,
) -> int:
    """Show the progress of a batch until all jobs have ended.

    Exits 0 if all are done, 1 if some failed, 124 after --timeout.

    Example: dueline batches watch photos --timeout 10m
    """
    seconds = None if timeout is None else parse_span(timeout) / SECOND_US
    with session_of(context).queues() as queues:
        batch = batch_named(queues, name)
        handle = _handle(queues, batch)
        try:
            counts = handle.wait(seconds)
        except TimeoutError as error:
            note(str(error))
            Output.of(context, queues.engine).entry(_entry(batch, handle))
            return TIMED_OUT
        Output.of(context, queues.engine).entry(_entry(batch, handle))
    return 1 if counts.failed else 0


@batches.command()
def retry(context: typer.Context, name: NameArgument, *, dry_run: DryRunOption = False) -> None:
    """Run the dead jobs of a batch again.

    Example: dueline batches retry photos
    """
    with session_of(context).queues() as queues:
        handle = _handle(queues, batch_named(queues, name))
        answer: dict[str, Value] = {"batch": name, "matching": handle.counts().dead}
        if not dry_run:
            answer["retried"] = handle.retry_failed()
        Output.of(context, queues.engine).entry({**answer, "dry_run": dry_run})


@batches.command()
def cancel(context: typer.Context, name: NameArgument, *, dry_run: DryRunOption = False) -> None:
    """Cancel the waiting jobs of a batch, and ask running ones to stop.

    Example: dueline batches cancel photos --dry-run
    """
    with session_of(context).queues() as queues:
        handle = _handle(queues, batch_named(queues, name))
        answer: dict[str, Value] = {"batch": name, "matching": handle.counts().left}
        if not dry_run:
            changed = handle.cancel()
            answer |= {"cancelled": changed.done, "asked_to_stop": changed.asked}
        Output.of(context, queues.engine).entry({**answer, "dry_run": dry_run})


def _handle(queues: Queues, batch: records.Batch) -> Batch[object]:
    return Batch(batch, queues, SystemClock())


def _entry(batch: records.Batch, handle: Batch[object]) -> Entry:
    counts, _ = glance(handle)
    return {
        "batch": batch.name,
        "task": batch.task,
        "queue": batch.queue,
        "items": counts.items,
        "left": counts.left,
        **counts.by_state(),
        "begun": Instant(batch.begun_us),
    }
