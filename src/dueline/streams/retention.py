"""Which rows of a stream go: the old ones that no registered group needs.

How old is in the stream's record, so that nobody has to declare it. Anyone may let them go, as
often as they like and beside others: a consumer does for its stream, the monitor for all. It is
said which rows go, and then the groups are read once more; who registers a group, or moves one
back, reads afterwards what was said (rule F6). So a group either is seen, and keeps what it has
not read, or begins behind what goes.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from dueline.core.clock import DAY_US
from dueline.core.engine import Engine
from dueline.core.queue_settings import StreamSettings
from dueline.core.store import Store
from dueline.log import trimming
from dueline.streams import groups, resharding

SLICE_US: Final = DAY_US
"""How much of a shard goes at once: a store may have to delete bucket by bucket."""


class LetGo(NamedTuple):
    """From which shards rows went, and in which of them there is more that may go."""

    shards: Sequence[int] = ()
    more: Sequence[int] = ()


def expire(engine: Engine, stream: str, settings: StreamSettings) -> None:
    """Let go of all of a stream that may go, and of cuts of which nothing is left."""
    shards: Sequence[int] = [] if settings.keep_us is None else resharding.shards_of(settings)
    while shards:
        shards = let_go(engine, stream, settings, shards).more
    if settings.keep_us is not None:
        resharding.retire(engine, stream)


def let_go(engine: Engine, stream: str, settings: StreamSettings, shards: Sequence[int]) -> LetGo:
    """Let go of what may go in some shards, a slice of each; what is kept costs a read a shard."""
    if settings.keep_us is None or not shards:
        return LetGo()
    store, old_us = engine.store, engine.time.earliest_us() - settings.keep_us
    needed_us = groups.needed_us(store, stream, shards)
    said_us, more = {}, []
    for shard in shards:
        until_us = min(old_us, needed_us.get(shard, old_us))
        first_us = _first_us(store, stream, shard, until_us)
        if first_us is None:
            continue
        before_us = min(until_us, first_us + SLICE_US)
        if trimming.say(store, stream, shard, before_us=before_us, version=engine.ids.token()):
            said_us[shard] = before_us
            more += [shard] if before_us < until_us else []
    needed_us = groups.needed_us(store, stream, said_us) if said_us else {}
    going = [one for one, at_us in said_us.items() if needed_us.get(one, at_us) >= at_us]
    for shard in going:
        store.expire(stream, shard, before_us=said_us[shard])
    return LetGo(going, [shard for shard in more if shard in going])


def _first_us(store: Store, stream: str, shard: int, before_us: int) -> int | None:
    """Tell when the oldest row below an instant was appended; None: there is none."""
    if before_us <= 0:
        return None
    rows = store.tail(stream, shard, after=None, limit=1, until_us=before_us - 1).rows
    return rows[0].at_us if rows else None
