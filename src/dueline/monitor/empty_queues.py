"""Remove empty queues, and empty shards that take no new jobs.

A queue is removed if no worker serves it and it has default settings. Of other queues, shards that
take no new jobs are removed once they are empty, so that workers stop reading them. A process that
inserts a job reads the queue first, or checks afterwards (rule Q1). So a queue is marked first, and
removed when all processes that read it before the mark have finished (rule Q2).
"""

from collections.abc import Iterable, Iterator

from dueline.coordination.worker_registry import present
from dueline.core.clock import SECOND_US
from dueline.core.engine import Engine
from dueline.core.lane import dead_queue
from dueline.core.maintenance import StepResult
from dueline.core.pagination import EVER
from dueline.jobs.history import HISTORY_SUFFIX

EVERY_US = 1800 * SECOND_US
QUEUES_A_STEP = 50

WAIT_US = 600 * SECOND_US
"""How long a queue is marked before its removal; far longer than `catalog.LATE_US`."""


def remove_empty_queues(engine: Engine, after: str | None) -> StepResult:
    """Advance the removal of some queues or shards by one stage.

    A queue with changed settings stays, since these would be lost. A removed queue is created again
    when it is next used.
    """
    now_us, sure_us = engine.time.latest_us(), engine.time.earliest_us()
    names = engine.catalog.names_after(after, QUEUES_A_STEP)
    served = {queue for worker in present(engine.store) for queue in worker.queues}
    acts = sum(
        _advance(engine, name, is_served=name in served, now_us=now_us, sure_us=sure_us)
        for name in names
    )
    return StepResult(acts, after=names[-1] if len(names) == QUEUES_A_STEP else None)


def _advance(engine: Engine, name: str, *, is_served: bool, now_us: int, sure_us: int) -> bool:
    """Advance one queue. now_us, sure_us: the latest and the earliest that the time can be."""
    catalog = engine.catalog
    entry = catalog.entry(name)
    if entry is None:
        return False
    settings = entry.settings
    if not settings.has_leftovers and (is_served or settings != catalog.defaults):
        return False
    first = settings.shards if settings.has_leftovers else 0
    if any(_left(engine, name, range(first, settings.shards_read))):
        return False
    if entry.leaving_us is None:
        return catalog.mark_leaving(name, entry, 0)
    if entry.leaving_us == 0:  # only now it is certain that other processes see the mark
        return catalog.mark_leaving(name, entry, now_us)
    if sure_us - entry.leaving_us < WAIT_US:
        return False
    return catalog.narrow(name, entry) if first else catalog.remove(name, entry)


def _left(engine: Engine, name: str, shards: Iterable[int]) -> Iterator[bool]:
    """Yield for each place of these shards whether it has jobs or history."""
    store = engine.store
    for queue in (name, dead_queue(name)):
        for shard in shards:
            page = store.lanes(queue, shard, until_bucket=EVER, after=None, limit=1)
            yield bool(page.pointers)
    for shard in shards:
        yield bool(store.tail(name + HISTORY_SUFFIX, shard, after=None, limit=1).rows)
