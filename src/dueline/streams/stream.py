"""Streams: appending, reading, retention. Hot path: the benchmark `streams`."""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from itertools import repeat
from operator import attrgetter
from typing import Any, Final, NamedTuple

from dueline.coordination.leases import TTL_US_MIN
from dueline.core.call_options import read_headers
from dueline.core.clock import SECOND_US, duration_us
from dueline.core.codec import encode_events
from dueline.core.engine import Engine
from dueline.core.errors import AppendUnknown, BadInput, Unknown
from dueline.core.queue_settings import (
    StreamSettings,
    check_queue_name,
    check_stream_settings,
    shard_of,
)
from dueline.core.store import Row, Store
from dueline.core.tuples import made
from dueline.core.wakeup import Wakeup
from dueline.core.watermark import SEALED_US
from dueline.jobs.transaction import Transaction, expect_transaction
from dueline.log.reader import ShardReader, merged
from dueline.streams import dead_letters, groups, parked, pauses, resharding, retention, topics
from dueline.streams.batch import BATCH, TTL_US, Batch, ConsumerOptions
from dueline.streams.event import Event, Events, Position
from dueline.streams.groups import Lag, Member
from dueline.streams.seek import SeekResult, seek

CHUNK: Final = 10_000
"""Maximum number of events in one write."""

_ROUNDS_MAX: Final = 5

_instant = attrgetter("at_us")


def channel(stream: str) -> str:
    """Return the wake-up channel of a stream's consumers; no queue has such a name."""
    return f"{stream}!stream"


Handle = Callable[[Batch], object]


class Registered(NamedTuple):
    """A group's handler and options."""

    group: str
    handle: Handle
    terms: ConsumerOptions
    start: str | Position


class Stream:
    """An append-only log that any number of groups read by position; threads may share it.

    Creating one does not connect to the store.

    Args:
        connect: Returns the engine; connects at the first use.
        owner: The application: transactions of others are refused.
        join: Returns the transaction of what is passed as `tx=`.
        shards, keep_us, keep_bytes: Declared settings; None: as stored.

    Raises:
        BadInput: A name or value is out of range.
    """

    def __init__(
        self,
        connect: Callable[[], Engine],
        name: str,
        *,
        owner: object,
        shards: int | None,
        keep_us: int | None,
        keep_bytes: int | None = None,
        join: Callable[[object], Transaction] = expect_transaction,
    ) -> None:
        self.name = check_queue_name(name, "stream")
        check_stream_settings(
            StreamSettings(1 if shards is None else shards, keep_us, keep_bytes=keep_bytes)
        )
        self._connect = connect
        self._owner = owner
        self._join = join
        self._shards = shards
        self._keep_us = keep_us
        self._keep_bytes = keep_bytes
        self._lock = threading.Lock()
        self._last_us = 0
        self._known: tuple[Store, StreamSettings] | None = None
        self.consumers: dict[str, Registered] = {}

    def __repr__(self) -> str:
        return f"<Stream {self.name}>"

    @property
    def settings(self) -> StreamSettings:
        """The settings of the stream; the first use stores them.

        Raises: Conflict: the stream has another number of shards than declared.
        """
        engine = self._connect()
        if self._known is None or self._known[0] is not engine.store:
            return self.look()
        return self._known[1]

    def look(self) -> StreamSettings:
        """Read the settings again: the stream may have been resharded."""
        engine = self._connect()
        settings = self._stored(engine)
        self._known = (engine.store, settings)
        return settings

    def _stored(self, engine: Engine) -> StreamSettings:
        return resharding.stored(engine, self.name, self._shards, self._keep_us, self._keep_bytes)

    def reshard(self, shards: int) -> None:
        """Change the number of shards while the stream is in use.

        No event is lost, and events with the same key stay in order: groups read the old shards to
        their ends before they start with the new ones. Producers and consumers in other processes
        adapt by themselves.

        Raises: BadInput: the number is out of range. Conflict: other processes keep changing it.
        """
        check_stream_settings(StreamSettings(shards))
        engine = self._connect()
        self.look()
        resharding.reshard(engine, self.name, shards)
        self._shards = None
        self.look()
        engine.wakeups.wake([Wakeup(channel(self.name))])

    # Appending

    def append(
        self,
        value: Any,  # noqa: ANN401
        *,
        key: str | None = None,
        tx: object = None,
        headers: Mapping[str, str] | None = None,
        topic: str | None = None,
    ) -> Event:
        """Append one event.

        Args:
          value: a value that JSON can represent. key: selects the shard; events with the same key
            that one process appends are read in that order.
          tx: a transaction of the application, or on PostgreSQL a connection of your own, as in
            `task.using(tx=...)`; the event is appended if it commits.
          headers: small strings by name that travel with the event. topic: name under which
            groups with a pattern find it, as `app.publish` says.

        Raises: as `append_many`.
        """
        own = dict(read_headers(headers)) if headers else None
        name = None if topic is None else topics.check_topic(topic)
        return Event(self._append([(value, key)], tx, name, own)[0])

    def append_many(
        self, events: Iterable[tuple[Any, str | None]], *, tx: object = None
    ) -> Sequence[Event]:
        """Append events, each a value and a key or None, CHUNK of them in each write.

        Returns: the events with their positions.

        Raises:
          BadInput: an event cannot be encoded; nothing of its write is stored.
          AppendUnknown: some may or may not be stored; see `append_again`.
          StoreUnavailable: the events of this write are not stored.
        """
        everything = list(events)
        rows: list[Row] = []
        for start in range(0, len(everything), CHUNK):
            rows += self._append(everything[start : start + CHUNK], tx)
        return Events(rows)

    def append_again(self, rows: Sequence[Row]) -> Sequence[Event]:
        """Append the rows of an AppendUnknown again: none is lost, repeats have the same id."""
        return Events(self._store(self._connect(), rows))

    def _append(
        self,
        events: Sequence[tuple[Any, str | None]],
        tx: object,
        topic: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> Sequence[Row]:
        engine = self._connect()
        is_known = self._known is not None and self._known[0] is engine.store
        if isinstance(tx, Transaction):
            engine = self._join(tx).queues_of(self._owner).engine
            # Settings that are read or stored in a transaction may be rolled back: no caching.
            settings = self.settings if is_known else self._stored(engine)
        else:
            settings = self.settings  # outside: a new stream must not wait for a caller's commit
            if tx is not None:
                engine = self._join(tx).queues_of(self._owner).engine
        shards = settings.shards
        bodies = encode_events(events, topic, headers)
        now_us = engine.time.earliest_us()
        at_us = max(now_us, self._last_us)  # never before earlier appends of this process
        ids = engine.ids.many(len(events), now_us)
        first = settings.first
        places: Iterable[int] = repeat(first)
        if shards > 1:
            places = [
                first + shard_of(row_id if key is None else key.encode(), shards)
                for (_, key), row_id in zip(events, ids, strict=True)
            ]
        rows = made(Row, zip(repeat(self.name), places, repeat(at_us), ids, bodies, strict=False))
        return self._store(engine, rows)

    def _store(self, engine: Engine, rows: Sequence[Row]) -> Sequence[Row]:
        """Append rows; those whose shards were sealed meanwhile go into the new shards."""
        stored = self._sent(engine, rows)
        for _ in range(_ROUNDS_MAX):
            if not stored or max(map(_instant, stored)) <= SEALED_US:
                return stored
            is_own = engine is self._connect()  # not inside a transaction
            settings = self.look() if is_own else self._stored(engine)
            late = [number for number, row in enumerate(stored) if row.at_us > SEALED_US]
            again = self._sent(
                engine, [resharding.placed(rows[number], settings) for number in late]
            )
            moved = dict(zip(late, again, strict=True))
            stored = [moved.get(number, row) for number, row in enumerate(stored)]
        raise _unknown(self.name, [row for row in stored if row.at_us > SEALED_US])

    def _sent(self, engine: Engine, rows: Sequence[Row]) -> Sequence[Row]:
        """Append rows once; rows above the seal of their shard do not count."""
        if not rows:
            return []
        try:
            places = engine.store.append(rows)
        except Unknown as error:
            raise _unknown(self.name, rows) from error
        lying = [place for place in places if place is not None]
        last_us = max(lying, default=0)
        is_sealed = last_us > SEALED_US
        with self._lock:
            counted = [at_us for at_us in lying if at_us <= SEALED_US] if is_sealed else [last_us]
            self._last_us = max(self._last_us, max(counted, default=0))
        if len(lying) < len(rows):
            pairs = zip(rows, places, strict=True)
            lost = [row for row, place in pairs if place is None or place > SEALED_US]
            raise _unknown(self.name, lost)
        if not is_sealed:
            engine.wakeups.wake([Wakeup(channel(self.name))])
        if last_us > min(map(_instant, rows)):
            rows = [row._replace(at_us=at) for row, at in zip(rows, lying, strict=True)]
        return rows

    # Reading

    def read(
        self,
        after: Position | Mapping[int, Position] | None = None,
        *,
        shards: Sequence[int] | None = None,
    ) -> Iterator[Event]:
        """Read events in order of position, up to the present.

        To continue later, pass the position of the last event: none is missed, whichever shard
        later ones are in.

        Args:
          after: a position, such as `Position.at(yesterday)`, or one for each shard; None for
            the oldest event. shards: which ones; all by default.
        """
        chosen = resharding.shards_of(self.look()) if shards is None else shards
        readers = [
            self.reader(shard, None if place is None else (place.at_us, place.id))
            for shard in chosen
            for place in [_after(after, shard)]
        ]
        return map(Event, merged(readers))

    def reader(self, shard: int, after: tuple[int, bytes] | None) -> ShardReader:
        """Return a reader that reads one shard continuously."""
        engine = self._connect()
        return ShardReader(
            engine.store, self.name, shard, after=after, time=engine.time, clock=engine.clock
        )

    # Groups and retention

    def consumer(
        self,
        group: str,
        *,
        batch: int = BATCH,
        lease: timedelta | float = TTL_US / SECOND_US,
        park_after: int | None = None,
        start: str | Position = "oldest",
        topic: str | None = None,
    ) -> Callable[[Handle], Handle]:
        """Register a function as the handler of a group: `@clicks.consumer("billing")`.

        It is called with one Batch at a time, for each shard in order; `app.consume` runs it, in
        any number of processes.

        Args:
          batch: maximum number of events in a batch.
          lease: how long the shards of a process that died stay unavailable to others.
          park_after: number of failures, or of processes killed, after which an event is parked
            with all later events of its key. By default it is retried for ever, and its shard
            waits.
          start: where a new group begins: "oldest", "newest", or a position.
          topic: the topics whose events it handles, as `app.topic(...).consumer` says.

        Raises: BadInput: an option is out of range, or the group has a handler.
        """
        check_queue_name(group, "group")
        if group in self.consumers:
            raise BadInput(f"The group {group} of {self.name} has a handler already.")
        if type(batch) is not int or batch < 1:
            raise BadInput(f"batch={batch!r} is no number of events.")
        if park_after is not None and (type(park_after) is not int or park_after < 1):
            raise BadInput(f"park_after={park_after!r} is no number of failures.")
        ttl_us = duration_us(lease)
        if ttl_us < TTL_US_MIN:
            raise BadInput(f"lease={lease!r} is too short.", hint="Use 2 s or more.")
        if not isinstance(start, Position) and start not in ("oldest", "newest"):
            raise BadInput(f"start={start!r} is no place.", hint='Use "oldest" or "newest".')
        pattern = None if topic is None else topics.check_pattern(topic)
        terms = ConsumerOptions(batch, ttl_us, park_after, pattern)

        def register(handle: Handle) -> Handle:
            self.consumers[group] = Registered(group, handle, terms, start)
            return handle

        return register

    def lag(self, group: str) -> list[Lag]:
        """Return how far a group is behind, for each shard."""
        engine = self._connect()
        return groups.lags(
            engine.store,
            self.name,
            group,
            resharding.shards_of(self.look()),
            now_us=engine.time.earliest_us(),
        )

    def groups(self) -> list[str]:
        """Return the names of the registered groups, sorted."""
        return sorted(groups.registered(self._connect().store, self.name))

    def members(self, group: str) -> list[Member]:
        """Return the live members of a group, and which shards each holds."""
        return list(groups.members(self._connect().store, self.name, group))

    def forget_group(self, group: str) -> None:
        """Unregister a group, so that events that it has not read may expire."""
        groups.forget(self._connect().store, self.name, group)

    def seek(self, group: str, to: Position) -> list[SeekResult]:
        """Move a group to another position, such as `Position.at(yesterday)`.

        The group handles later events again, or skips events. None of its members may be alive.

        Raises: NotFound: the group does not exist. BadInput: the position is in the future.
          Conflict: a member of the group is alive, or started meanwhile.
        """
        engine = self._connect()
        return seek(engine, engine.clock, self.name, group, (to.at_us, to.id))

    def pause(self, *, group: str | None = None, shard: int | None = None) -> None:
        """Pause a consumer group, a shard for all groups, or a shard for one group.

        Within a second, consumers begin no further batch of what is paused; a batch that is being
        handled ends. They keep their shards and positions.

        Args:
          group: Name of the group; None for all groups.
          shard: Number of the shard; None for all shards.

        Raises:
          BadInput: Neither is named.
          NotFound: The group or the shard does not exist.
        """
        pauses.pause(self._connect(), self.name, group=group, shard=shard)

    def resume(self, *, group: str | None = None, shard: int | None = None) -> None:
        """End the pause of a group, a shard, or a shard for one group.

        Args:
          group: As it was paused.
          shard: As it was paused.

        Raises:
          BadInput: Neither is named.
          NotFound: The group or the shard does not exist.
        """
        pauses.resume(self._connect(), self.name, group=group, shard=shard)

    def parked(self, group: str) -> list[Event]:
        """Return the parked events of a group, in order for each shard."""
        return parked.events_of(self._connect().store, self.name, group)

    def unpark(self, group: str, *, key: str | None = None, event_id: str | None = None) -> None:
        """Handle parked events again, in order: those of a key, or one event without a key.

        The consumer starts with the next heartbeat.

        Raises:
            BadInput: Not exactly one of `key` and `event_id` was passed.
            NotFound: The group has no such parked events.
        """
        if (key is None) == (event_id is None):
            raise BadInput("Pass exactly one of `key` and `event_id`.")
        name = dead_letters.name_of(key, event_id or "")
        parked.unpark(self._connect(), self.name, group, name)

    def expire(self) -> None:
        """Delete events older than `keep`, or beyond `keep_bytes`, that no registered group needs.

        Any process may call this at any time; running consumers and the maintenance leader do.
        """
        retention.trim_stream(self._connect(), self.name, self.look())


def _after(after: Position | Mapping[int, Position] | None, shard: int) -> Position | None:
    if after is None or isinstance(after, Position):
        return after
    if isinstance(after, Mapping):
        return after.get(shard)
    raise BadInput(f"after={after!r:.80} is no position.", hint="Write Position.at(instant).")


def _unknown(stream: str, rows: Sequence[Row]) -> AppendUnknown:
    error = AppendUnknown(
        f"The store did not say whether {len(rows)} event(s) of {stream} were stored.",
        hint="Append the error's `rows` again: repeats have the same id.",
    )
    error.rows = rows
    return error
