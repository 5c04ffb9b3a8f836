"""`dueline streams`: show and reshard streams."""

from typing import Annotated

import typer

from dueline.admin.operations import Operations
from dueline.cli.options import argument, option
from dueline.cli.output import Entry, Output, Part, Span, note
from dueline.cli.session import operator, session_of
from dueline.coordination.leases import grants
from dueline.core.engine import Engine
from dueline.core.errors import NotFound
from dueline.core.queue_settings import StreamSettings
from dueline.streams import groups, pauses, resharding

COLUMNS = ("stream", "shards", "shards_read", "keep", "groups", "paused")
PART_COLUMNS = ("group", "shard", "takes_new", "holder", "behind", "waits", "read", "paused")

streams = typer.Typer(help="Show streams and consumer groups.")

NameArgument = Annotated[str, argument("NAME", "Name of the stream.")]


@streams.command("list")
def list_streams(context: typer.Context) -> None:
    """List streams with their shards, retention and groups.

    Example: dueline streams list
    """
    with session_of(context).engine() as engine:
        shown = [
            _entry(engine, name, settings) for name, settings in resharding.streams(engine.store)
        ]
        Output.of(context, engine).entries(shown, COLUMNS, count=len(shown))
    if not shown:
        note("No streams. The first append creates one.")


@streams.command("show")
def show(context: typer.Context, name: NameArgument) -> None:
    """Show the holder and lag of each group and shard of a stream.

    Example: dueline streams show clicks
    """
    with session_of(context).engine() as engine:
        settings = settings_of(engine, name)
        shown = [
            entry
            for group in sorted(groups.registered(engine.store, name))
            for entry in lag_entries(engine, name, settings, group)
        ]
        parts = [Part("lags", shown, PART_COLUMNS)] if shown else []
        Output.of(context, engine).entry(_entry(engine, name, settings), parts=parts)


@streams.command("reshard")
def reshard(
    context: typer.Context,
    name: NameArgument,
    *,
    shards: Annotated[int, option("N", "New number of shards.")],
) -> None:
    """Change the number of shards of a stream.

    Works while the stream is in use. Events of one key stay in order: each group first reads the
    old shards to their end.

    Example: dueline streams reshard clicks --shards 12
    """
    with session_of(context).engine() as engine:
        settings = resharding.reshard(engine, name, shards)
        Output.of(context, engine).entry(_entry(engine, name, settings))


PausedGroupOption = Annotated[
    str | None, option("GROUP", "Consumer group; default: all.", "-g", "--group")
]
PausedShardOption = Annotated[int | None, option("N", "Shard; default: all.", "--shard")]


@streams.command("pause")
def pause(
    context: typer.Context,
    name: NameArgument,
    *,
    group: PausedGroupOption = None,
    shard: PausedShardOption = None,
) -> None:
    """Pause a consumer group, or a shard.

    Within a second, consumers begin no further batch of what is paused. They keep their shards and
    positions, and producers are not affected. Pass both options to pause a shard for one group.

    Example: dueline streams pause clicks --group billing
    """
    with session_of(context).queues() as queues:
        Operations(queues, operator()).pause_stream(name, group=group, shard=shard)
        engine = queues.engine
        Output.of(context, engine).entry(_entry(engine, name, settings_of(engine, name)))


@streams.command("resume")
def resume(
    context: typer.Context,
    name: NameArgument,
    *,
    group: PausedGroupOption = None,
    shard: PausedShardOption = None,
) -> None:
    """Resume what was paused, with the same options.

    Example: dueline streams resume clicks --group billing
    """
    with session_of(context).queues() as queues:
        Operations(queues, operator()).resume_stream(name, group=group, shard=shard)
        engine = queues.engine
        Output.of(context, engine).entry(_entry(engine, name, settings_of(engine, name)))


def settings_of(engine: Engine, name: str) -> StreamSettings:
    """Return the settings of a stream.

    Raises: NotFound: the stream does not exist.
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
        "keep_bytes": settings.keep_bytes,
        "groups": ", ".join(sorted(groups.registered(engine.store, name))),
        "paused": [stream_pause.text for stream_pause in settings.paused],
    }


def lag_entries(engine: Engine, name: str, settings: StreamSettings, group: str) -> list[Entry]:
    """Return the lag and holder of each shard of a group."""
    now_us = engine.time.earliest_us()
    held = grants(engine.store, groups.leases_at(name, group))
    entries: list[Entry] = []
    for lag in groups.lags(
        engine.store, name, group, resharding.shards_of(settings), now_us=now_us
    ):
        grant = held.get(str(lag.shard))
        entries.append(
            {
                "group": group,
                "shard": lag.shard,
                "takes_new": not resharding.is_old(settings, lag.shard),
                "holder": grant.holder if grant and grant.until_us > now_us else None,
                "behind": lag.rows,
                "waits": Span(lag.waits_us),
                "read": lag.read,
                "paused": pauses.is_paused(settings, group, lag.shard),
            }
        )
    return entries
