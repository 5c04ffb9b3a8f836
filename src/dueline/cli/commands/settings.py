"""`dueline queues set`: change the settings of a queue."""

from typing import Annotated, Any, Final

import typer

from dueline.cli.options import argument, option, read_counts
from dueline.cli.output import Entry, Output, Span
from dueline.cli.session import session_of
from dueline.core.durations import parse_span
from dueline.core.errors import BadInput
from dueline.core.queue_settings import SPANS, QueueSettings, chosen_shards, weights_of

_ZERO: Final = {
    "keep": "none", "aging": "never", "dead_keep": "until purged", "version_wait": "none",
    "poll": "auto",
}  # fmt: skip
"""What people read of a duration of 0."""


def set_queue(
    context: typer.Context,
    name: Annotated[str, argument("NAME", "Name of the queue.")],
    *,
    shards: Annotated[str | None, option("N|N-M", "Number of shards, or a range by load.")] = None,
    lease: Annotated[
        str | None, option("DURATION", "Duration of a claim without heartbeat.")
    ] = None,
    keep: Annotated[str | None, option("DURATION", "Retention of results; 0s for none.")] = None,
    aging: Annotated[
        str | None, option("DURATION", "Wait that raises the priority by one; 0s: never.")
    ] = None,
    history: Annotated[str | None, option("LEVEL", "attempts, all, arguments or off.")] = None,
    history_keep: Annotated[str | None, option("DURATION", "Retention of the history.")] = None,
    dead_keep: Annotated[
        str | None, option("DURATION", "Retention of dead-letter jobs; 0s: unlimited.")
    ] = None,
    version_wait: Annotated[
        str | None, option("DURATION", "Wait for a worker that can take a job's arguments.")
    ] = None,
    deliver: Annotated[str | None, option("MODE", "at_least_once or at_most_once.")] = None,
    weight: Annotated[
        list[str] | None, option("TENANT=N", "Turns of a tenant; repeat for all tenants.")
    ] = None,
    dead_in_order: Annotated[
        str | None, option("MODE", "Dead jobs block their order key, or are skipped.")
    ] = None,
    poll: Annotated[
        str | None, option("DURATION", "Maximum time between polls of an idle worker; 0s: auto.")
    ] = None,
    bucket: Annotated[
        str | None, option("DURATION", "Width of the buckets of a queue that this creates.")
    ] = None,
) -> None:
    """Change the settings of a queue.

    Clients and workers apply the change within five seconds. A new number of shards applies to
    new jobs; workers still read the old shards until they are empty. --weight replaces all
    weights: a tenant of weight 3 has three turns for one of the others. --bucket creates the
    queue if it does not exist, and is refused if the queue has buckets of another width.

    Example: dueline queues set mail --shards 7
    """
    given = locals()
    changes: dict[str, Any] = {
        "history": history, "deliver": deliver, "dead_in_order": dead_in_order,
    }  # fmt: skip
    changes |= {} if shards is None else chosen_shards(_read_shards(shards))
    changes |= {
        field: parse_span(given[word]) for word, field in SPANS.items() if given[word] is not None
    }
    changes["weights"] = None if weight is None else _read_weights(weight)
    changes = {key: value for key, value in changes.items() if value is not None}
    if not changes:
        raise BadInput("No setting is given.", hint="Use --shards 7, for example.")
    with session_of(context).engine() as engine:
        if bucket is None:
            (name,) = engine.catalog.chosen(name)
        settings = engine.catalog.configure(name, **changes)
        Output.of(context, engine).entry({"queue": name, **settings_entry(settings)})


def settings_entry(settings: QueueSettings) -> Entry:
    """Return the output of a queue's settings."""
    return {
        "shards": settings.shards,
        "shards_range": "-".join(map(str, settings.shards_range)) or None,
        "shards_read": settings.shards_read,
        "history": settings.history,
        **{
            word: Span(getattr(settings, field), _ZERO.get(word, ""))
            for word, field in SPANS.items()
        },
        "deliver": settings.deliver,
        "dead_in_order": settings.dead_in_order,
        "weights": [f"{tenant}={number}" for tenant, number in settings.weights],
    }


def _read_shards(text: str) -> int | tuple[int, int]:
    """Read a number of shards, or a range."""
    least, _, most = text.partition("-")
    if not least.isdecimal() or (text != least and not most.isdecimal()):
        raise BadInput(f"{text!r:.80} is not a number of shards.", hint="Use --shards 8 or 8-64.")
    return (int(least), int(most)) if most else int(least)


def _read_weights(words: list[str]) -> tuple[tuple[str, int], ...]:
    """Read the weights of tenants; those of weight 1 are omitted."""
    return weights_of(read_counts(words, what="weight", hint="Use --weight acme=3."))
