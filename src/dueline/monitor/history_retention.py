"""Let go of history that is older than it is kept."""

from dueline.core.chore import Report
from dueline.core.clock import SECOND_US
from dueline.core.engine import Engine
from dueline.jobs.history import HISTORY_SUFFIX, forget

EVERY_US = 3600 * SECOND_US
QUEUES_A_STEP = 20


def forget_history(engine: Engine, after: str | None) -> Report:
    """Let go of the old history of some queues; one that has none costs a read a shard."""
    names = engine.catalog.names_after(after, QUEUES_A_STEP)
    now_us = engine.time.earliest_us()
    forgotten = 0
    for name in names:
        settings = engine.catalog.settings(name)
        shards, before_us = settings.shards_read, now_us - settings.history_us
        if any(_is_old(engine, name, shard, before_us) for shard in range(shards)):
            version = engine.ids.token()
            forget(engine.store, name, shards, before_us=before_us, version=version)
            forgotten += 1
    return Report(forgotten, after=names[-1] if len(names) == QUEUES_A_STEP else None)


def _is_old(engine: Engine, name: str, shard: int, before_us: int) -> bool:
    page = engine.store.tail(
        name + HISTORY_SUFFIX, shard, after=None, limit=1, until_us=before_us - 1
    )
    return bool(page.rows)
