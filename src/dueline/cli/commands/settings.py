"""`dueline queues set`: change how a queue is set, while it is in use."""

from typing import Annotated, Any

import typer

from dueline.cli.options import read_counts
from dueline.cli.output import Entry, Output, Span
from dueline.cli.session import session_of
from dueline.core.durations import parse_span
from dueline.core.errors import BadInput
from dueline.core.queue_settings import QueueSettings, chosen_shards, weights_of


def set_queue(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The queue's name.")],
    *,
    shards: Annotated[
        str | None,
        typer.Option(metavar="N|N-M", help="Slices that new jobs spread over; N to M, by load."),
    ] = None,
    lease: Annotated[
        str | None, typer.Option(metavar="TIME", help="How long a claim lasts without a beat.")
    ] = None,
    keep: Annotated[
        str | None, typer.Option(metavar="TIME", help="How long results are kept; 0s: not at all.")
    ] = None,
    aging: Annotated[
        str | None, typer.Option(metavar="TIME", help="Waited for a step of priority; 0s: none.")
    ] = None,
    history: Annotated[
        str | None, typer.Option(metavar="WHAT", help="attempts, all, arguments or off.")
    ] = None,
    history_keep: Annotated[
        str | None, typer.Option(metavar="TIME", help="How long history is kept.")
    ] = None,
    dead_keep: Annotated[
        str | None, typer.Option(metavar="TIME", help="How long dead jobs are kept; 0s: for ever.")
    ] = None,
    deliver: Annotated[
        str | None, typer.Option(metavar="HOW", help="at_least_once or at_most_once.")
    ] = None,
    weight: Annotated[
        list[str] | None,
        typer.Option(metavar="TENANT=N", help="N turns to others' one; all there are are given."),
    ] = None,
) -> None:
    """Change a queue's settings while it is in use; everybody goes by them after 5 s at most.

    Jobs that are there stay where they are, and are found there: another number of shards
    concerns new ones alone.

    Example: dueline queues set mail --shards 7
    """
    changes: dict[str, Any] = {"history": history, "deliver": deliver}
    changes |= {} if shards is None else chosen_shards(_read_shards(shards))
    changes |= {
        key: None if text is None else parse_span(text)
        for key, text in (
            ("lease_us", lease),
            ("keep_us", keep),
            ("aging_us", aging),
            ("history_us", history_keep),
            ("dead_us", dead_keep),
        )
    }
    changes["weights"] = None if weight is None else _read_weights(weight)
    changes = {key: value for key, value in changes.items() if value is not None}
    if not changes:
        raise BadInput("Nothing is to be changed.", hint="Give --shards 7, for example.")
    with session_of(context).engine() as engine:
        (name,) = engine.catalog.chosen(name)
        settings = engine.catalog.configure(name, **changes)
        Output.of(context, engine).entry(_entry(name, settings))


def _entry(name: str, settings: QueueSettings) -> Entry:
    return {
        "queue": name,
        "shards": settings.shards,
        "shards_range": "-".join(map(str, settings.shards_range)) or None,
        "shards_read": settings.shards_read,
        "lease": Span(settings.lease_us),
        "keep": Span(settings.keep_us),
        "aging": Span(settings.aging_us),
        "history": settings.history,
        "history_keep": Span(settings.history_us),
        "dead_keep": Span(settings.dead_us),
        "deliver": settings.deliver,
        "weights": [f"{tenant}={number}" for tenant, number in settings.weights],
    }


def _read_shards(text: str) -> int | tuple[int, int]:
    """Read a number of shards, or the least and the most of them."""
    least, _, most = text.partition("-")
    if not least.isdecimal() or (text != least and not most.isdecimal()):
        raise BadInput(f"{text!r:.80} is no number of shards.", hint="Write --shards 8 or 8-64.")
    return (int(least), int(most)) if most else int(least)


def _read_weights(words: list[str]) -> tuple[tuple[str, int], ...]:
    """Read weights; whoever weighs 1 needs none."""
    return weights_of(read_counts(words, what="weight", hint="Write --weight acme=3."))
