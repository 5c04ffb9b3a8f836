"""Delete dead-letter jobs and history that are older than their queue keeps them."""

from dueline.core.clock import SECOND_US
from dueline.core.engine import Engine
from dueline.core.lane import bucket_of, dead_queue
from dueline.core.maintenance import StepResult
from dueline.core.pagination import lane_pages
from dueline.core.queue_settings import QueueSettings
from dueline.jobs.bulk import drop_dead
from dueline.jobs.history import HISTORY_SUFFIX, forget

DEAD_EVERY_US = 300 * SECOND_US
DEAD_QUEUES_A_STEP = 50
JOBS_A_STEP = 500

HISTORY_EVERY_US = 3600 * SECOND_US
QUEUES_A_STEP = 20


def expire_dead_jobs(engine: Engine, after: str | None) -> StepResult:
    """Delete old dead-letter jobs of some queues; a queue that keeps them for ever costs no read.

    If a queue has more of them than one step deletes, the next step continues there.
    """
    after = after or ""  # before all names, and not None: a step may end in the first queue
    names = engine.catalog.names_after(after, DEAD_QUEUES_A_STEP)
    now_us = engine.time.earliest_us()
    deleted = 0
    for name in names:
        settings = engine.catalog.settings(name)
        if settings.dead_us:
            before_us = now_us - settings.dead_us
            deleted += _delete_dead(engine, name, settings, before_us, JOBS_A_STEP - deleted)
        if deleted >= JOBS_A_STEP:
            return StepResult(deleted, after=after)
        after = name
    return StepResult(deleted, after=after if len(names) == DEAD_QUEUES_A_STEP else None)


def _delete_dead(
    engine: Engine, name: str, settings: QueueSettings, before_us: int, limit: int
) -> int:
    """Delete up to `limit` jobs that died before a timestamp, by which their lanes are listed."""
    until_bucket = bucket_of(before_us, settings.width_us)
    deleted = 0
    for shard in range(settings.shards_read):
        for page in lane_pages(engine.store, dead_queue(name), shard, until_bucket=until_bucket):
            for _, lane in page.pointers:
                scanned = engine.store.scan(
                    lane, after=None, until_us=before_us - 1, limit=limit - deleted
                )
                rows = (row for row in scanned.jobs if not row.outcome)  # others are being retried
                deleted += sum(changed.done for changed in drop_dead(engine, rows))
                if deleted == limit:
                    return deleted
    return deleted


def expire_history(engine: Engine, after: str | None) -> StepResult:
    """Delete the old history of some queues; a queue without any costs one read for each shard."""
    names = engine.catalog.names_after(after, QUEUES_A_STEP)
    now_us = engine.time.earliest_us()
    expired = 0
    for name in names:
        settings = engine.catalog.settings(name)
        shards, before_us = settings.shards_read, now_us - settings.history_us
        if any(_is_old(engine, name, shard, before_us) for shard in range(shards)):
            version = engine.ids.token()
            forget(engine.store, name, shards, before_us=before_us, version=version)
            expired += 1
    return StepResult(expired, after=names[-1] if len(names) == QUEUES_A_STEP else None)


def _is_old(engine: Engine, name: str, shard: int, before_us: int) -> bool:
    page = engine.store.tail(
        name + HISTORY_SUFFIX, shard, after=None, limit=1, until_us=before_us - 1
    )
    return bool(page.rows)
