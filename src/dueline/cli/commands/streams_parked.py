"""`dueline streams`: the parked events of a group."""

from typing import Annotated

import typer

from dueline.admin.operations import Operations
from dueline.cli.commands.streams import NameArgument, settings_of
from dueline.cli.commands.streams_read import GroupOption, event_entry
from dueline.cli.options import option
from dueline.cli.output import Output, note
from dueline.cli.session import operator, session_of
from dueline.core.errors import BadInput
from dueline.streams import dead_letters, parked

COLUMNS = ("at", "shard", "key", "id", "value")


def list_parked(context: typer.Context, name: NameArgument, *, group: GroupOption) -> None:
    """List the dead-lettered events of a group.

    These are events that failed too often, and the later ones of their keys.

    Example: dueline streams parked clicks --group billing
    """
    with session_of(context).engine() as engine:
        settings_of(engine, name)
        shown = [event_entry(event) for event in parked.events_of(engine.store, name, group)]
        Output.of(context, engine).entries(shown, COLUMNS, count=len(shown))
    if not shown:
        note("No parked events.")


def unpark(
    context: typer.Context,
    name: NameArgument,
    *,
    group: GroupOption,
    key: Annotated[str | None, option("KEY", "Only events with this ordering key.")] = None,
    event: Annotated[str | None, option("ID", "Only this event, which has no key.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="All parked events.")] = False,
) -> None:
    """Have dead-lettered events of a group handled again, in order.

    Its consumers begin with them within seconds, or when they run again.

    Example: dueline streams unpark clicks --group billing --key 7
    """
    if [key is not None, event is not None, everything].count(True) != 1:
        raise BadInput("Pass exactly one of --key, --event and --all.")
    asked = None if everything else dead_letters.name_of(key, event or "")
    with session_of(context).queues() as queues:
        settings_of(queues.engine, name)
        keys = Operations(queues, operator()).unpark(name, group, asked)
        Output.of(context, queues.engine).entry({"stream": name, "group": group, "keys": keys})
