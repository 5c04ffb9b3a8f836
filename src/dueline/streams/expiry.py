"""Let go of old events of streams, also where no consumer runs.

What goes, and what stays because a registered group has not read it, is as when a consumer lets
go of them: by whatever the stream's record says, so that nobody has to declare it here.
"""

from dueline.core.chore import Report
from dueline.core.clock import SECOND_US
from dueline.core.engine import Engine
from dueline.streams import resharding, retention

EVERY_US = 300 * SECOND_US
STREAMS_A_STEP = 50
SHARDS_A_STEP = 32


def expire(engine: Engine, after: str | None) -> Report:
    """Let go of what is old in some streams; one that keeps all for ever costs no read.

    Where a stream has more shards than one step takes, or more in one of them, the next step
    begins there: behind `<stream>`, or in `<stream>/<shard>`.
    """
    name, _, begun = (after or "").partition("/")
    streams = resharding.streams_after(engine.store, name or None, STREAMS_A_STEP)
    is_last = len(streams) < STREAMS_A_STEP
    started = resharding.settings_of(engine.store, name) if begun else None
    if started is not None:
        streams.insert(0, (name, started))
    first, acts, left = int(begun or 0), 0, SHARDS_A_STEP
    for stream, settings in streams:
        if settings.keep_us is not None:
            shards = [shard for shard in resharding.shards_of(settings) if shard >= first]
            found = retention.let_go(engine, stream, settings, shards[:left])
            acts += len(found.shards)
            if rest := [*found.more, *shards[left:]]:
                return Report(acts, f"{stream}/{rest[0]}")
            left -= len(shards)
            resharding.retire(engine, stream)
        first = 0
    return Report(acts, None if is_last else streams[-1][0])
