"""Unlist lanes that are past and empty, also in queues that no worker reads."""

from dueline.core.clock import SECOND_US
from dueline.core.engine import Engine
from dueline.core.lane import bucket_of, dead_queue
from dueline.core.maintenance import StepResult
from dueline.core.pagination import first_pages
from dueline.core.queue_settings import QueueSettings

EVERY_US = 60 * SECOND_US
QUEUES_A_STEP = 50


def sweep_lanes(engine: Engine, after: str | None) -> StepResult:
    """Sweep the lanes and dead-letter lanes of some queues, where a past lane is listed."""
    now_us = engine.time.earliest_us()
    names = engine.catalog.names_after(after, QUEUES_A_STEP)
    swept = 0
    for name in names:
        settings = engine.catalog.settings(name)
        swept += sum(_sweep(engine, queue, settings, now_us) for queue in (name, dead_queue(name)))
    return StepResult(swept, after=names[-1] if len(names) == QUEUES_A_STEP else None)


def _sweep(engine: Engine, queue: str, settings: QueueSettings, now_us: int) -> int:
    """Sweep each shard whose first listed lane is past: close buckets, then empty them.

    Returns: how many.
    """
    store, today = engine.store, bucket_of(now_us, settings.width_us)
    after = dict.fromkeys(range(settings.shards_read))
    first = first_pages(store, queue, after, until_bucket=today - 1, limit=1)
    swept = 0
    for shard in after:
        page = first.get(shard) or store.lanes(
            queue, shard, until_bucket=today - 1, after=None, limit=1
        )
        if any(pointer.listing < today for pointer in page.pointers):
            store.sweep(queue, shard, now_us=now_us, width_us=settings.width_us)
            swept += 1
    return swept
