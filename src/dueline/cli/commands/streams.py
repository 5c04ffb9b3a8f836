"""`dueline streams`: logs, who reads them, how far they have come."""

from typing import Annotated

import typer

from dueline.cli.output import Entry, Output, Part, Span, note
from dueline.cli.session import session_of
from dueline.coordination.leases import grants
from dueline.core.engine import Engine
from dueline.core.errors import NotFound
from dueline.core.queue_settings import StreamSettings
from dueline.streams import groups, resharding

COLUMNS = ("stream", "shards", "shards_read", "keep", "groups")
PART_COLUMNS = ("group", "shard", "takes_new", "holder", "behind", "waits", "read")

streams = typer.Typer(help="See streams, who reads them, how far they have come.")

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The stream's name.")]


@streams.command("list")
def list_streams(context: typer.Context) -> None:
    """List the streams that were used: their shards, how long events are kept, their groups.

    Example: dueline streams list
    """
    with session_of(context).engine() as engine:
        shown = [
            _entry(engine, name, settings) for name, settings in resharding.streams(engine.store)
        ]
        Output.of(context, engine).entries(shown, COLUMNS, count=len(shown))
    if not shown:
        note("There is no stream yet; the first append makes one.")


@streams.command("show")
def show(context: typer.Context, name: NameArgument) -> None:
    """Show a stream: for each group and shard who holds it, and how far behind it is.

    Example: dueline streams show clicks
    """
    with session_of(context).engine() as engine:
        settings = settings_of(engine, name)
        shown = [
            one
            for group in sorted(groups.registered(engine.store, name))
            for one in lag_entries(engine, name, settings, group)
        ]
        parts = [Part("lags", shown, PART_COLUMNS)] if shown else []
        Output.of(context, engine).entry(_entry(engine, name, settings), parts=parts)


@streams.command("reshard")
def reshard(
    context: typer.Context,
    name: NameArgument,
    *,
    shards: Annotated[int, typer.Option(metavar="N", help="Slices that keys spread over.")],
) -> None:
    """Cut a stream into another number of shards while it is in use.

    Events of one key stay in order: each group reads the shards of before to their end first.

    Example: dueline streams reshard clicks --shards 12
    """
    with session_of(context).engine() as engine:
        settings = resharding.reshard(engine, name, shards)
        Output.of(context, engine).entry(_entry(engine, name, settings))


def settings_of(engine: Engine, name: str) -> StreamSettings:
    """Read a stream's settings.

    Raises: NotFound: nobody has used it.
    """
    settings = resharding.settings_of(engine.store, name)
    if settings is None:
        raise NotFound(f"There is no stream {name}.", hint="See `dueline streams list`.")
    return settings


def _entry(engine: Engine, name: str, settings: StreamSettings) -> Entry:
    return {
        "stream": name,
        "shards": settings.shards,
        "shards_read": len(resharding.shards_of(settings)),
        "keep": None if settings.keep_us is None else Span(settings.keep_us),
        "groups": ", ".join(sorted(groups.registered(engine.store, name))),
    }


def lag_entries(engine: Engine, name: str, settings: StreamSettings, group: str) -> list[Entry]:
    """Show how far behind a group is, shard by shard, and who holds each."""
    now_us = engine.time.earliest_us()
    held = grants(engine.store, groups.leases_at(name, group))
    found: list[Entry] = []
    for lag in groups.lags(
        engine.store, name, group, resharding.shards_of(settings), now_us=now_us
    ):
        grant = held.get(str(lag.shard))
        found.append(
            {
                "group": group,
                "shard": lag.shard,
                "takes_new": not resharding.is_old(settings, lag.shard),
                "holder": grant.holder if grant and grant.until_us > now_us else None,
                "behind": lag.rows,
                "waits": Span(lag.waits_us),
                "read": lag.read,
            }
        )
    return found
