"""Retention of streams: delete old rows that no registered group needs.

The retention is in the record of the stream, so no process has to declare it. Any process may
delete old rows, at any time: a consumer does so for its stream, the maintenance leader for all.
First a record says which rows will be deleted, and then the groups are read again. A process that
registers a group, or moves one back, reads that record afterwards (rule F6). So a group is either
seen, and keeps the rows that it has not read, or starts after the deleted rows.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from dueline.core.clock import DAY_US, SECOND_US
from dueline.core.engine import Engine
from dueline.core.maintenance import StepResult
from dueline.core.queue_settings import StreamSettings
from dueline.core.store import Store
from dueline.log import trimming
from dueline.streams import groups, resharding, sizes

SLICE_US: Final = DAY_US
"""How much of a shard is deleted at once: a store may have to delete bucket by bucket."""

EVERY_US = 300 * SECOND_US
STREAMS_A_STEP = 50
SHARDS_A_STEP = 32


class Trimmed(NamedTuple):
    """Shards from which rows were deleted, and those of them that have more to delete."""

    shards: Sequence[int] = ()
    more: Sequence[int] = ()


def trim_streams(engine: Engine, after: str | None) -> StepResult:
    """Delete old rows of some streams; a stream that keeps all rows costs no read.

    If a stream has more shards than one step trims, or a shard has more rows, the next step
    continues there: past `<stream>`, or in `<stream>/<shard>`.
    """
    now_us = engine.time.earliest_us()
    name, _, begun = (after or "").partition("/")
    streams = resharding.streams_after(engine.store, name or None, STREAMS_A_STEP)
    is_last = len(streams) < STREAMS_A_STEP
    started = resharding.settings_of(engine.store, name) if begun else None
    if started is not None:
        streams.insert(0, (name, started))
    first, acts, left = int(begun or 0), 0, SHARDS_A_STEP
    for stream, settings in streams:
        old_us = _old_us(engine, stream, settings, now_us=now_us)
        if old_us is not None:
            shards = [shard for shard in resharding.shards_of(settings) if shard >= first]
            trimmed = trim_shards(engine, stream, shards[:left], old_us)
            acts += len(trimmed.shards)
            if rest := [*trimmed.more, *shards[left:]]:
                return StepResult(acts, f"{stream}/{rest[0]}")
            left -= len(shards)
            resharding.drop_old_shards(engine, stream)
        first = 0
    return StepResult(acts, None if is_last else streams[-1][0])


def trim_stream(engine: Engine, stream: str, settings: StreamSettings) -> None:
    """Delete all old rows of a stream, and the old shards of which nothing is left."""
    old_us = _old_us(engine, stream, settings, now_us=engine.time.earliest_us())
    if old_us is None:
        return
    shards: Sequence[int] = resharding.shards_of(settings)
    while shards:
        shards = trim_shards(engine, stream, shards, old_us).more
    resharding.drop_old_shards(engine, stream)


def _old_us(engine: Engine, stream: str, settings: StreamSettings, *, now_us: int) -> int | None:
    """Return the time before which rows go, by age or by size; None: all rows stay for ever."""
    if settings.keep_us is None and settings.keep_bytes is None:
        return None
    old_us = 0 if settings.keep_us is None else now_us - settings.keep_us
    if settings.keep_bytes is None:
        return old_us
    shards = resharding.shards_of(settings)
    return max(old_us, sizes.surplus_until_us(engine, stream, shards, settings.keep_bytes))


def trim_shards(engine: Engine, stream: str, shards: Sequence[int], old_us: int) -> Trimmed:
    """Delete rows older than `old_us`, a slice of each shard; nothing to delete costs one read."""
    if not shards:
        return Trimmed()
    store = engine.store
    needed_us = groups.needed_us(store, stream, shards)
    announced_us, more = {}, []
    for shard in shards:
        until_us = min(old_us, needed_us.get(shard, old_us))
        first_us = _first_us(store, stream, shard, until_us)
        if first_us is None:
            continue
        before_us = min(until_us, first_us + SLICE_US)
        if trimming.announce(store, stream, shard, before_us=before_us, version=engine.ids.token()):
            announced_us[shard] = before_us
            more += [shard] if before_us < until_us else []
    needed_us = groups.needed_us(store, stream, announced_us) if announced_us else {}
    going = [shard for shard, at_us in announced_us.items() if needed_us.get(shard, at_us) >= at_us]
    for shard in going:
        store.expire(stream, shard, before_us=announced_us[shard])
    return Trimmed(going, [shard for shard in more if shard in going])


def _first_us(store: Store, stream: str, shard: int, before_us: int) -> int | None:
    """Return when the oldest row before a timestamp was appended; None: no row."""
    if before_us <= 0:
        return None
    rows = store.tail(stream, shard, after=None, limit=1, until_us=before_us - 1).rows
    return rows[0].at_us if rows else None
