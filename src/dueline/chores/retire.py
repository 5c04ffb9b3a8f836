"""Unlist lanes that are past and empty, also where no worker looks."""

from dueline.chores.chore import Report
from dueline.clock import SECOND_US
from dueline.lane import bucket_of, dead_queue
from dueline.queue import Queues
from dueline.settings import QueueSettings

EVERY_US = 60 * SECOND_US
QUEUES_A_STEP = 50


def retire(queues: Queues, after: str | None) -> Report:
    """Sweep some queues, and their dead jobs' lanes, where a past lane is listed."""
    names = queues.catalog.names_after(after, QUEUES_A_STEP)
    swept = 0
    for name in names:
        settings = queues.catalog.settings(name)
        swept += sum(
            _sweep(queues, queue, shard, settings)
            for queue in (name, dead_queue(name))
            for shard in range(settings.shards_read)
        )
    return Report(swept, after=names[-1] if len(names) == QUEUES_A_STEP else None)


def _sweep(queues: Queues, queue: str, shard: int, settings: QueueSettings) -> bool:
    """Sweep a shard if the first lane of its list is past: it closes buckets, then empties them."""
    now_us = queues.time.earliest_us()
    today = bucket_of(now_us, settings.width_us)
    page = queues.store.lanes(queue, shard, until_bucket=today - 1, after=None, limit=1)
    if not any(pointer.listing < today for pointer in page.pointers):
        return False
    queues.store.sweep(queue, shard, now_us=now_us, width_us=settings.width_us)
    return True
