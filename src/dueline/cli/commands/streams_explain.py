"""`dueline streams explain`: what became of an event."""

from typing import Annotated

import typer

from dueline.admin.read_models import Admin
from dueline.cli import job_rows
from dueline.cli.commands.streams import NameArgument
from dueline.cli.commands.streams_read import event_entry
from dueline.cli.errors import Exit
from dueline.cli.options import argument, option
from dueline.cli.output import Entry, Output, Part, note
from dueline.cli.session import session_of
from dueline.core.errors import NotFound
from dueline.streams.event_explanation import Delivery

COLUMNS = ("group", "pattern", "reason", "job", "sentence")


def explain(
    context: typer.Context,
    name: NameArgument,
    event: Annotated[str, argument("EVENT", "Id or position of the event.")],
    *,
    group: Annotated[
        str | None, option("GROUP", "Only this group, such as 'task NAME'.", "-g", "--group")
    ] = None,
) -> int:
    """Explain which groups get an event, and what it waits for.

    For a task that subscribes to topics, the event becomes a job, which is explained too. The
    stream of topics is `topics`.

    Example: dueline streams explain topics 0196f2... --group 'task shop.welcome'
    """
    with session_of(context).queues() as queues:
        details = Admin(queues).explain_event(name, event)
        shown = [delivery for delivery in details.deliveries if group in (None, delivery.group)]
        if group is not None and not shown:
            raise NotFound(
                f"There is no group {name}/{group:.80}.",
                hint=f"See `dueline streams groups {name}`.",
            )
        entry: Entry = {"stream": name, "id": details.id, "is_stored": details.event is not None}
        if details.event is not None:
            entry = {**entry, **event_entry(details.event)}
        parts = [Part("groups", list(map(_entry, shown)), COLUMNS)]
        Output.of(context, queues.engine).entry(entry, parts=parts)
    if not shown:
        note("No group is registered. The first worker, consumer or publisher registers its own.")
    return Exit.DONE


def _entry(delivery: Delivery) -> Entry:
    explained = job_rows.of_explanation(delivery.job, delivery.explanation)
    job = {"job": delivery.job or None, **explained}
    del job["id"]
    return {"group": delivery.group, "pattern": delivery.pattern, **job}
