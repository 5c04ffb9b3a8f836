"""Resharding: change the number of shards of a stream while it is in use.

New shards are opened, and the old ones are sealed: their watermarks are raised to the end of time.
A producer that still appends to an old shard finds its row above the seal, and appends it to a new
shard. Readers read the old shards to their ends before they start with the new ones, so the events
of a key stay in order (rule F5). The layout is one record, and any process that reads it may seal,
so a process that dies never leaves a stream half resharded.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Final

from dueline.core.codec import decode, encode
from dueline.core.engine import Engine
from dueline.core.errors import Conflict, NotFound
from dueline.core.features import STREAM_SIZES
from dueline.core.queue_settings import Cut, StreamSettings, check_stream_settings, shard_of
from dueline.core.readable_records import readable, value_at
from dueline.core.store import Put, Row, Store
from dueline.core.watermark import SEALED_US
from dueline.log.checkpoint import Checkpoint, Place
from dueline.streams import dead_letters, groups
from dueline.streams.dead_letters import Note
from dueline.streams.event import Event

PARTITION: Final = "streams"
"""The partition of records with the settings of each stream, by its name."""

END: Final[Place] = (SEALED_US, b"")
"""The position of a reader that has read a sealed shard to its end."""

_ROUNDS_MAX: Final = 5


# The shards in the settings


def shards_of(settings: StreamSettings) -> list[int]:
    """Return all shards that are read, the oldest first."""
    return [*_in(settings.before), *range(settings.first, settings.first + settings.shards)]


def before(settings: StreamSettings, shard: int) -> list[int]:
    """Return the shards that must be read to their ends before this one is started."""
    own = max((first for first, _ in _cuts(settings) if first <= shard), default=0)
    return [shard for shard in _in(settings.before) if shard < own]


def is_old(settings: StreamSettings, shard: int) -> bool:
    """Return whether a shard takes no new events."""
    return shard < settings.first


def placed(row: Row, settings: StreamSettings) -> Row:
    """Return a row that was refused by a sealed shard with its new shard, and the same id."""
    key = Event(row).key
    return row._replace(
        shard=settings.first + shard_of(row.id if key is None else key.encode(), settings.shards)
    )


def _cuts(settings: StreamSettings) -> Sequence[Cut]:
    return (*settings.before, Cut(settings.first, settings.shards))


def _in(cuts: Collection[Cut]) -> list[int]:
    return [shard for first, count in cuts for shard in range(first, first + count)]


# The progress of a group


def is_read_out(present: Checkpoint | None) -> bool:
    """Return whether a group has read a shard to its end."""
    return present is not None and present.place is not None and present.place >= END


def is_over(present: Checkpoint | None) -> bool:
    """Return whether no member needs to hold a shard: all is read, and nothing is parked."""
    return present is not None and is_read_out(present) and not present.note


def inherited(
    settings: StreamSettings, shard: int, places: Mapping[int, Checkpoint]
) -> Mapping[str, tuple[int, str]]:
    """Return the keys that start parked in a new shard: their events in old shards are parked."""
    parked = {}
    for earlier in before(settings, shard):
        note = dead_letters.read_note(places[earlier].note) if earlier in places else Note()
        for name in note.parked:
            key = dead_letters.key_in(name)
            own = None if key is None else settings.first + shard_of(key.encode(), settings.shards)
            if own == shard:
                parked[name] = (0, "")
    return parked


# Stored settings


def stored(
    engine: Engine,
    name: str,
    shards: int | None,
    keep_us: int | None,
    keep_bytes: int | None = None,
) -> StreamSettings:
    """Read the settings of a stream; the first use stores them as declared.

    Raises: Conflict: the stream has another number of shards than declared.
    """
    for _ in range(_ROUNDS_MAX):
        present, version = value_at(engine.store, PARTITION, name, StreamSettings)
        wanted = present or StreamSettings(shards or engine.catalog.defaults.shards)
        if keep_us is not None:
            wanted = replace(wanted, keep_us=keep_us)
        if keep_bytes is not None and keep_bytes != wanted.keep_bytes:
            engine.catalog.adopt(STREAM_SIZES)
            wanted = replace(wanted, keep_bytes=keep_bytes)
        if shards is not None and shards != wanted.shards and not wanted.first:
            raise Conflict(
                f"The stream {name} has {wanted.shards} shards, not {shards}.",
                hint="Declare that number, or change it with `stream.reshard`.",
            )
        if present == wanted or _write(engine, name, wanted, version):
            return wanted
    raise _changing(name)


def reshard(engine: Engine, name: str, shards: int) -> StreamSettings:
    """Change the number of shards of a stream, and seal the old shards.

    Raises:
      BadInput: the number is out of range. NotFound: the stream was never used.
      Conflict: other processes keep changing it.
    """

    def cut(present: StreamSettings) -> StreamSettings:
        if present.shards == shards:
            return present
        cuts = (*present.before, Cut(present.first, present.shards))
        first = present.first + present.shards
        return check_stream_settings(replace(present, shards=shards, first=first, before=cuts))

    settings = change(engine, name, cut)
    for shard in _in(settings.before):
        engine.store.close_until(name, shard, at_us=SEALED_US)
    return settings


def change(
    engine: Engine, name: str, how: Callable[[StreamSettings], StreamSettings]
) -> StreamSettings:
    """Store settings computed from the present ones.

    Raises: NotFound: the stream was never used. Conflict: other processes keep changing it.
    """
    for _ in range(_ROUNDS_MAX):
        present, version = value_at(engine.store, PARTITION, name, StreamSettings)
        if present is None:
            raise NotFound(f"No stream {name} has been used.", hint="See `dueline streams list`.")
        wanted = how(present)
        if wanted == present or _write(engine, name, wanted, version):
            return wanted
    raise _changing(name)


def drop_old_shards(engine: Engine, name: str) -> None:
    """Remove the oldest shards from the settings once they are empty and no group needs them."""
    present, version = value_at(engine.store, PARTITION, name, StreamSettings)
    if present is None or not present.before:
        return
    oldest, *rest = present.before
    if all(_is_done_with(engine.store, name, shard) for shard in _in([oldest])):
        _write(engine, name, replace(present, before=tuple(rest)), version)


def _is_done_with(store: Store, name: str, shard: int) -> bool:
    if store.close_until(name, shard, at_us=SEALED_US) < SEALED_US:
        return False
    if store.tail(name, shard, after=None, limit=1, until_us=SEALED_US).rows:
        return False
    known = groups.registered(store, name)
    return all(is_over(groups.places(store, name, group).get(shard)) for group in known)


def _write(engine: Engine, name: str, wanted: StreamSettings, version: bytes) -> bool:
    put = Put(name, engine.ids.token(), encode(wanted), expect=version)
    return engine.store.commit(PARTITION, (put,))


def _changing(name: str) -> Conflict:
    return Conflict(f"The settings of {name} keep changing.", hint="Try again.")


def settings_of(store: Store, name: str) -> StreamSettings | None:
    """Read the settings of a stream; None: it was never used."""
    return value_at(store, PARTITION, name, StreamSettings)[0]


def streams(store: Store) -> list[tuple[str, StreamSettings]]:
    """Return the streams that were used, with their settings; damaged ones are omitted."""
    known = readable(store, PARTITION, StreamSettings)
    return [(record.key, settings) for record, settings in known]


def streams_after(store: Store, after: str | None, limit: int) -> list[tuple[str, StreamSettings]]:
    """Return up to `limit` streams that were used, by name, past `after`."""
    page = store.read(PARTITION, after=after, limit=limit)
    return [(record.key, decode(record.value, StreamSettings)) for record in page]
