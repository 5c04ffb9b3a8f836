"""`dueline topics`: subscribers, publishing, and the removal of a subscriber."""

import json
from typing import Annotated

import typer

from dueline.admin.operations import Operations
from dueline.cli.options import argument, option
from dueline.cli.output import Entry, Output, Span, note
from dueline.cli.session import operator, session_of
from dueline.core.engine import Engine
from dueline.core.errors import BadInput
from dueline.streams import groups, resharding
from dueline.streams import topics as names
from dueline.streams.stream import Stream

COLUMNS = ("subscriber", "pattern", "members", "behind", "waits", "read", "paused")
PUBLISHED_COLUMNS = ("topic", "key", "id", "position", "subscribers")

topics = typer.Typer(help="Publish events, and show who subscribes.")


@topics.command("list")
def list_topics(
    context: typer.Context,
    pattern: Annotated[str, argument("PATTERN", "Only subscribers to such topics.")] = "**",
) -> None:
    """List subscribers to topics, and how far each is behind.

    A subscriber is a consumer group, or a task with `on=`, whose name is `task NAME`.

    Example: dueline topics list 'user.*'
    """
    wanted = names.check_pattern(pattern)
    with session_of(context).engine() as engine:
        shown = [
            _entry(engine, name, group)
            for name, group in sorted(groups.subscribers(engine.store).items())
            if group.pattern is not None and names.may_meet(wanted, group.pattern)
        ]
        Output.of(context, engine).entries(shown, COLUMNS, count=len(shown))
    if not shown:
        note("No subscribers. The first publisher or worker that knows one registers it.")


@topics.command("publish")
def publish(
    context: typer.Context,
    topic: Annotated[str, argument("TOPIC", "Name of the topic.")],
    value: Annotated[str, argument("JSON", "Value of the event.")],
    *,
    key: Annotated[str | None, option("KEY", "Ordering key.", "--key")] = None,
    header: Annotated[
        list[str] | None, option("NAME=VALUE", "Header; repeatable.", "--header")
    ] = None,
) -> None:
    """Publish an event.

    Example: dueline topics publish user.created '{"id": 7}' --key 7
    """
    name = names.check_topic(topic)
    with session_of(context).engine() as engine:
        stream = Stream(lambda: engine, names.STREAM, owner=None, shards=None, keep_us=None)
        event = stream.append(_value(value), key=key, headers=_headers(header or []), topic=name)
        known = groups.subscribers(engine.store).values()
        shown: Entry = {
            "topic": name,
            "key": key,
            "id": event.id,
            "position": str(event.position),
            "subscribers": sum(
                names.matches(group.pattern, name) for group in known if group.pattern is not None
            ),
        }
        Output.of(context, engine).entry(shown)


@topics.command("forget")
def forget(
    context: typer.Context,
    subscriber: Annotated[str, argument("SUBSCRIBER", "As `topics list` names it.")],
) -> None:
    """Remove a subscriber, so that events that it has not read can expire.

    If a worker or consumer of it still runs or starts again, it continues where it was.

    Example: dueline topics forget 'task shop.welcome'
    """
    with session_of(context).queues() as queues:
        Operations(queues, operator()).forget_subscriber(subscriber)
        Output.of(context, queues.engine).entry({"subscriber": subscriber, "forgotten": True})


def _entry(engine: Engine, name: str, group: groups.Group) -> Entry:
    settings = resharding.settings_of(engine.store, names.STREAM)
    shards = [] if settings is None else resharding.shards_of(settings)
    now_us = engine.time.earliest_us()
    lags = groups.lags(engine.store, names.STREAM, name, shards, now_us=now_us)
    paused = [] if settings is None else settings.paused
    return {
        "subscriber": name,
        "pattern": group.pattern,
        "members": len(groups.members(engine.store, names.STREAM, name)),
        "behind": sum(lag.rows for lag in lags),
        "waits": Span(max((lag.waits_us for lag in lags), default=0)),
        "read": sum(lag.read for lag in lags),
        "paused": [pause.text for pause in paused if pause.group in (None, name)],
    }


def _value(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError as error:
        raise BadInput(
            f"The value is not JSON: {error}.", hint="Quote it for the shell: '{\"id\": 7}'."
        ) from error


def _headers(headers: list[str]) -> dict[str, str]:
    if bad := [header for header in headers if "=" not in header]:
        raise BadInput(f"{bad[0]!r:.80} is not a header.", hint="Use --header request=7f3a.")
    return dict(header.split("=", 1) for header in headers)
