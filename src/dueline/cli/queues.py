"""`dueline queues`: what they hold, how they are set."""

from typing import Annotated

import typer

from dueline.cli.output import Entry, Instant, Output, Part, Span, note
from dueline.cli.session import session_of
from dueline.recipes.registry import Presence, present
from dueline.stats import Counts, count

COLUMNS = ("queue", "ready", "running", "scheduled", "retrying", "dead", "oldest_ready", "workers")
WORKER_COLUMNS = ("worker", "held", "slots", "started", "beat")

queues = typer.Typer(help="See queues.")


@queues.command("list")
def list_queues(context: typer.Context) -> None:
    """List the queues with their numbers of jobs."""
    with session_of(context).queues() as opened:
        workers = present(opened.store)
        counts = [count(opened, name, workers) for name in opened.catalog.names()]
        shown = [_numbers(one) for one in counts]
        Output.of(context, opened).entries(shown, COLUMNS, count=len(shown))
    _tell_capped(counts)
    if not counts:
        note("There is no queue yet; the first job makes one.")


@queues.command()
def show(
    context: typer.Context, name: Annotated[str, typer.Argument(help="The queue's name.")]
) -> None:
    """Show a queue: its numbers of jobs, its settings, its live workers."""
    with session_of(context).queues() as opened:
        (name,) = opened.catalog.chosen(name)
        workers = [one for one in present(opened.store) if name in one.queues]
        counts = count(opened, name, workers)
        settings = opened.catalog.settings(name)
        shown = {
            **_numbers(counts),
            "lease": Span(settings.lease_us),
            "keep": Span(settings.keep_us),
            "history": settings.history,
            "shards": settings.shards,
            "bucket": Span(settings.width_us),
        }
        part = Part("live_workers", [worker_entry(one) for one in workers], WORKER_COLUMNS)
        Output.of(context, opened).entry(shown, parts=[part])
    _tell_capped([counts])


def worker_entry(one: Presence) -> Entry:
    """Show a live worker."""
    return {
        "worker": one.worker,
        "queues": one.queues,
        "tasks": one.tasks,
        "held": one.held,
        "slots": one.slots,
        "started": Instant(one.started_us),
        "beat": Instant(one.beat_us),
    }


def _numbers(counts: Counts) -> Entry:
    oldest_us = counts.oldest_ready_us
    return {
        "queue": counts.queue,
        "ready": counts.ready,
        "running": counts.running,
        "scheduled": counts.scheduled,
        "retrying": counts.retrying,
        "dead": counts.dead,
        "oldest_ready": None if oldest_us is None else Instant(oldest_us),
        "workers": counts.workers,
        "capped": counts.is_capped,
    }


def _tell_capped(counts: list[Counts]) -> None:
    capped = [one.queue for one in counts if one.is_capped]
    if capped:
        note(f"There are more jobs than were counted in {', '.join(capped)}.")
