"""Streams, their groups and their newest events, for people and programs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import starmap

from dueline.coordination.leases import grants
from dueline.core.engine import Engine
from dueline.core.errors import NotFound
from dueline.core.queue_settings import StreamSettings
from dueline.streams import groups, pauses, resharding
from dueline.streams.event import Event
from dueline.streams.groups import Lag
from dueline.streams.latest import latest_events


@dataclass(frozen=True, slots=True)
class GroupSummary:
    """A consumer group. lags: of each shard. holders: the member that holds each held shard.

    pattern: of the topics to which it subscribes; None for a group of all events.
    """

    name: str
    lags: Sequence[Lag]
    holders: Mapping[int, str]
    members: Sequence[groups.Member]
    pattern: str | None = None

    @property
    def unread(self) -> int:
        """Number of unread events."""
        return sum(lag.rows for lag in self.lags)

    @property
    def waits_us(self) -> int:
        """Age of the oldest unread event, in microseconds."""
        return max((lag.waits_us for lag in self.lags), default=0)

    @property
    def read_us(self) -> int:
        """Timestamp of the last event that was read or skipped; 0 without one."""
        return max((lag.read_us for lag in self.lags), default=0)

    def is_paused(self, settings: StreamSettings) -> bool:
        """Return whether the group, or a part of it, is paused."""
        return any(pauses.is_paused(settings, self.name, lag.shard) for lag in self.lags)


@dataclass(frozen=True, slots=True)
class StreamSummary:
    """A stream, the numbers of the shards that are read, and its groups.

    latest: the newest events, the newest first, if they were asked for.
    """

    name: str
    settings: StreamSettings
    shards: Sequence[int]
    groups: Sequence[GroupSummary]
    latest: Sequence[Event] = ()


def all_streams(engine: Engine) -> Sequence[StreamSummary]:
    """Return all streams with their groups and the lag of each shard."""
    return list(starmap(partial(_summary, engine), resharding.streams(engine.store)))


def stream_named(engine: Engine, name: str, events: int) -> StreamSummary:
    """Return a stream with its groups, the lag of each shard, and up to `events` newest events.

    Raises: NotFound: there is no such stream.
    """
    settings = resharding.settings_of(engine.store, name)
    if settings is None:
        raise NotFound(f"There is no stream {name:.80}.", hint="See `dueline streams list`.")
    stream = _summary(engine, name, settings)
    now_us = engine.time.latest_us()
    return replace(stream, latest=latest_events(engine.store, name, stream.shards, events, now_us))


def _summary(engine: Engine, name: str, settings: StreamSettings) -> StreamSummary:
    store, now_us = engine.store, engine.time.earliest_us()
    shards = list(resharding.shards_of(settings))
    summaries = []
    for group, registered in sorted(groups.registered(store, name).items()):
        held = grants(store, groups.leases_at(name, group))
        holders = {int(key): grant.holder for key, grant in held.items() if grant.until_us > now_us}
        lags = groups.lags(store, name, group, shards, now_us=now_us)
        members = groups.members(store, name, group)
        summaries.append(GroupSummary(group, lags, holders, members, registered.pattern))
    return StreamSummary(name, settings, shards, summaries)
