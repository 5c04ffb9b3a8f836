"""`dueline streams`: read a stream, show and move its groups."""

import json
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from itertools import islice, takewhile
from typing import Annotated

import typer

from dueline.cli.commands.streams import NameArgument, lag_entries, settings_of
from dueline.cli.errors import Exit
from dueline.cli.options import option
from dueline.cli.output import Entry, Instant, Output, Part, Raw, Span, note
from dueline.cli.session import session_of
from dueline.cli.stream_positions import read_place
from dueline.core.clock import Clock, SystemClock
from dueline.core.engine import Engine
from dueline.core.errors import BadInput, NotFound
from dueline.core.queue_settings import StreamSettings
from dueline.log.checkpoint import Place
from dueline.log.reader import ShardReader, merged
from dueline.streams import dead_letters, groups, resharding, topics
from dueline.streams.event import Event, Position
from dueline.streams.seek import seek as seek_group

COLUMNS = ("at", "shard", "key", "position", "value")
WIDTHS = (20, 5, 12, 49, 0)
GROUP_COLUMNS = ("group", "members", "behind", "waits", "parked")
MEMBER_COLUMNS = ("group", "member", "shards", "beat", "busy")
SHARD_COLUMNS = ("group", "shard", "holder", "position", "behind", "waits", "parked")
SOUGHT_COLUMNS = ("shard", "before", "position", "behind")

EVERY_S = 0.5

GroupOption = Annotated[str, option("GROUP", "Consumer group.", "-g", "--group")]


def read(
    context: typer.Context,
    name: NameArgument,
    *,
    since: Annotated[
        str, option("POSITION", "Start: oldest, newest, 10m, timestamp, position.")
    ] = "oldest",
    until: Annotated[str | None, option("POSITION", "End, in the same form.")] = None,
    shard: Annotated[list[int] | None, option("N", "Only this shard; repeatable.")] = None,
    key: Annotated[
        str | None, option("PATTERN", "Only events with such a key: 7, or 'user.*'.")
    ] = None,
    topic: Annotated[str | None, option("PATTERN", "Only events of such topics: 'user.*'.")] = None,
    limit: Annotated[
        int | None, option("N", "Maximum number of events; default: all.", min=1)
    ] = None,
    follow: Annotated[
        bool, typer.Option("-f", "--follow", help="Continue until Ctrl-C (exit 130).")
    ] = False,
) -> int:
    """Print the events of a stream in order.

    Reading does not move any group. With -o ndjson each event is one line.

    Example: dueline streams read clicks --since 10m -o ndjson
    """
    if follow and until is not None:
        raise BadInput("--follow and --until exclude each other.", hint="Pass one of them.")
    clock = SystemClock()
    with session_of(context).engine() as engine:
        _expect_shards(name, settings_of(engine, name), shard or [])
        output = Output.of(context, engine)
        now_us = engine.time.latest_us()
        end = None if until is None else read_place(until, now_us)
        reading = _Reading(engine, clock, name, read_place(since, now_us), shard)
        events = _events(reading, end, follow=follow, clock=clock)
        events = islice(filter(_filter(key, topic), events), limit)
        try:
            for event in events:
                output.line(event_entry(event), COLUMNS, WIDTHS)
        except KeyboardInterrupt:
            return Exit.INTERRUPTED
    return Exit.DONE


def list_groups(context: typer.Context, name: NameArgument) -> None:
    """Show the members, positions and lag of the groups of a stream.

    Example: dueline streams groups clicks
    """
    with session_of(context).engine() as engine:
        settings = settings_of(engine, name)
        known = sorted(groups.registered(engine.store, name))
        shards = [
            entry for group in known for entry in _shard_entries(engine, name, settings, group)
        ]
        members = [entry for group in known for entry in _member_entries(engine, name, group)]
        shown = [_group_entry(group, shards, members) for group in known]
        parts = [
            Part("groups", shown, GROUP_COLUMNS),
            Part("members", members, MEMBER_COLUMNS),
            Part("shards", shards, SHARD_COLUMNS),
        ]
        Output.of(context, engine).entry({"stream": name}, parts=parts)
    if not known:
        note("No groups. The first start of a consumer registers one.")


def seek(
    context: typer.Context,
    name: NameArgument,
    *,
    group: GroupOption,
    to: Annotated[str, option("POSITION", "oldest, newest, 10m, timestamp or position.")],
) -> None:
    """Move a group to another position in all shards.

    The group handles events after the position again, or skips events before it. Stop its
    consumers first: the command is rejected while a member is alive (exit 5). Products that were
    stored with their position are created again.

    Example: dueline streams seek clicks --group billing --to 2h
    """
    with session_of(context).engine() as engine:
        place = read_place(to, engine.time.earliest_us())
        moved = seek_group(engine, SystemClock(), name, group, (place.at_us, place.id))
        settings = settings_of(engine, name)
        behind = {
            entry["shard"]: entry["behind"] for entry in lag_entries(engine, name, settings, group)
        }
        shown = [
            {
                "shard": result.shard,
                "before": _place_text(result.before),
                "position": _place_text(result.place),
                "behind": behind.get(result.shard),
            }
            for result in moved
        ]
        Output.of(context, engine).entries(shown, SOUGHT_COLUMNS, count=len(shown))


# Events


def _expect_shards(name: str, settings: StreamSettings, only: list[int]) -> None:
    for shard in set(only).difference(resharding.shards_of(settings)):
        raise NotFound(
            f"The stream {name} has no shard {shard}.", hint=f"See `dueline streams groups {name}`."
        )


class _Reading:
    """Reads the shards of a stream continuously, including those of later resharding."""

    def __init__(
        self, engine: Engine, clock: Clock, name: str, after: Position, only: list[int] | None
    ) -> None:
        self._engine = engine
        self._clock = clock
        self._name = name
        self._after = (after.at_us, after.id)
        self._only = only
        self._readers: dict[int, ShardReader] = {}

    def events(self) -> Iterator[Event]:
        """Return the present events in order."""
        for shard in self._only or resharding.shards_of(settings_of(self._engine, self._name)):
            if shard not in self._readers:
                self._readers[shard] = self._reader(shard)
        return map(Event, merged(list(self._readers.values())))

    def _reader(self, shard: int) -> ShardReader:
        engine = self._engine
        return ShardReader(
            engine.store, self._name, shard, after=self._after, time=engine.time, clock=self._clock
        )


def _filter(key: str | None, topic: str | None) -> Callable[[Event], bool]:
    """Return what tells whether an event is printed; in keys, `*`, `?` and `[...]` match."""
    pattern = None if topic is None else topics.check_pattern(topic)

    def is_chosen(event: Event) -> bool:
        return (key is None or (event.key is not None and fnmatchcase(event.key, key))) and (
            pattern is None or topics.matches(pattern, event.topic)
        )

    return is_chosen


def _events(
    reading: _Reading, end: Position | None, *, follow: bool, clock: Clock
) -> Iterator[Event]:
    while True:
        events = reading.events()
        if end is not None:
            events = takewhile(lambda event: event.position <= end, events)
        yield from events
        if not follow:
            return
        clock.sleep(EVERY_S)


def event_entry(event: Event) -> Entry:
    """Return the output of an event."""
    topic: Entry = {} if event.topic is None else {"topic": event.topic}
    own = json.dumps(event.headers, ensure_ascii=False)
    headers: Entry = {"headers": Raw(own)} if event.headers else {}
    return {
        "at": Instant(event.row.at_us),
        "shard": event.shard,
        "key": event.key,
        **topic,
        **headers,
        "id": event.id,
        "position": str(event.position),
        "value": Raw(json.dumps(event.value, ensure_ascii=False)),
    }


# Groups


def _group_entry(group: str, shards: list[Entry], members: list[Entry]) -> Entry:
    own = [shard for shard in shards if shard["group"] == group]
    waits = [lag["waits"] for lag in own]
    return {
        "group": group,
        "members": sum(member["group"] == group for member in members),
        "behind": sum(lag["behind"] for lag in own if isinstance(lag["behind"], int)),
        "waits": Span(max((wait.us for wait in waits if isinstance(wait, Span)), default=0)),
        "parked": sum(lag["parked"] for lag in own if isinstance(lag["parked"], int)),
    }


def _member_entries(engine: Engine, name: str, group: str) -> Iterator[Entry]:
    for member in groups.members(engine.store, name, group):
        yield {
            "group": group,
            "member": member.name,
            "shards": list(member.shards),
            "beat": Instant(member.beat_us),
            "busy": Span(member.beat_us - member.busy_us) if member.busy_us else None,
        }


def _shard_entries(
    engine: Engine, name: str, settings: StreamSettings, group: str
) -> Iterator[Entry]:
    """Yield the state of a group in each shard. parked: number of dead-lettered keys."""
    places = groups.places(engine.store, name, group)
    for lag in lag_entries(engine, name, settings, group):
        shard = lag["shard"]
        assert isinstance(shard, int)
        present = places.get(shard)
        yield {
            **lag,
            "position": None if present is None else _place_text(present.place),
            "epoch": 0 if present is None else present.epoch,
            "parked": 0 if present is None else len(dead_letters.read_note(present.note).parked),
        }


def _place_text(place: Place | None) -> str | None:
    """Return a position as `--to` and `--since` read it."""
    if place is None:
        return None
    return "the end" if place >= resharding.END else str(Position(*place))
