"""Unlist lanes that are past and empty, also in queues that no worker reads."""

from dueline.core.clock import SECOND_US
from dueline.core.engine import Engine
from dueline.core.lane import bucket_of, dead_queue
from dueline.core.maintenance import StepResult
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
        swept += sum(
            _sweep(engine, queue, shard, settings, now_us)
            for queue in (name, dead_queue(name))
            for shard in range(settings.shards_read)
        )
    return StepResult(swept, after=names[-1] if len(names) == QUEUES_A_STEP else None)


def _sweep(engine: Engine, queue: str, shard: int, settings: QueueSettings, now_us: int) -> bool:
    """Sweep a shard if its first listed lane is past: close buckets, then empty them."""
    today = bucket_of(now_us, settings.width_us)
    page = engine.store.lanes(queue, shard, until_bucket=today - 1, after=None, limit=1)
    if not any(pointer.listing < today for pointer in page.pointers):
        return False
    engine.store.sweep(queue, shard, now_us=now_us, width_us=settings.width_us)
    return True
