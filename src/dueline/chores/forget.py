"""Let go of history that is older than it is kept."""

from dueline.chores.chore import Report
from dueline.clock import SECOND_US
from dueline.history import HISTORY_SUFFIX, forget
from dueline.queue import Queues

EVERY_US = 3600 * SECOND_US
QUEUES_A_STEP = 20


def forget_history(queues: Queues, after: str | None) -> Report:
    """Let go of the old history of some queues; one that has none costs a read a shard."""
    names = queues.catalog.names_after(after, QUEUES_A_STEP)
    now_us = queues.time.earliest_us()
    forgotten = 0
    for name in names:
        settings = queues.catalog.settings(name)
        shards, before_us = settings.shards_read, now_us - settings.history_us
        if any(_is_old(queues, name, shard, before_us) for shard in range(shards)):
            version = queues.ids.token()
            forget(queues.store, name, shards, before_us=before_us, version=version)
            forgotten += 1
    return Report(forgotten, after=names[-1] if len(names) == QUEUES_A_STEP else None)


def _is_old(queues: Queues, name: str, shard: int, before_us: int) -> bool:
    page = queues.store.tail(
        name + HISTORY_SUFFIX, shard, after=None, limit=1, until_us=before_us - 1
    )
    return bool(page.rows)
