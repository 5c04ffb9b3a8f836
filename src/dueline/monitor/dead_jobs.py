"""Forget dead jobs that lie longer than their queue keeps them."""

from dueline.core.chore import Report
from dueline.core.clock import SECOND_US
from dueline.core.engine import Engine
from dueline.core.lane import bucket_of, dead_queue
from dueline.core.pagination import lane_pages
from dueline.core.queue_settings import QueueSettings
from dueline.jobs.bulk import drop_dead

EVERY_US = 300 * SECOND_US
QUEUES_A_STEP = 50
JOBS_A_STEP = 500


def purge(engine: Engine, after: str | None) -> Report:
    """Forget some dead jobs of some queues; one that keeps them for ever costs no read.

    A queue that has more of them than one step takes is where the next step begins.
    """
    after = after or ""  # before all names, and not None: a step may end in the first queue
    names = engine.catalog.names_after(after, QUEUES_A_STEP)
    forgotten = 0
    for name in names:
        settings = engine.catalog.settings(name)
        if settings.dead_us:
            forgotten += _purge_queue(engine, name, settings, JOBS_A_STEP - forgotten)
        if forgotten >= JOBS_A_STEP:
            return Report(forgotten, after=after)
        after = name
    return Report(forgotten, after=after if len(names) == QUEUES_A_STEP else None)


def _purge_queue(engine: Engine, name: str, settings: QueueSettings, limit: int) -> int:
    """Forget up to `limit` jobs that died before what is kept; lanes are listed by that time."""
    before_us = engine.time.earliest_us() - settings.dead_us
    until_bucket = bucket_of(before_us, settings.width_us)
    forgotten = 0
    for shard in range(settings.shards_read):
        for page in lane_pages(engine.store, dead_queue(name), shard, until_bucket=until_bucket):
            for _, lane in page.pointers:
                scanned = engine.store.scan(
                    lane, after=None, until_us=before_us - 1, limit=limit - forgotten
                )
                rows = (row for row in scanned.jobs if not row.outcome)  # others are being retried
                forgotten += sum(changed.done for changed in drop_dead(engine, rows))
                if forgotten == limit:
                    return forgotten
    return forgotten
