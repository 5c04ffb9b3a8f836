"""Let queues vanish of which nothing is left, and shards that were left over.

A queue goes that nobody serves or has set; of others go the shards that no new jobs come to, once
they are empty, so that no worker reads them any more. Whoever puts a job into a shard has read of
it first, or looks afterwards (rule Q1). So what is to go is marked first, and goes when all who had
read of it before have come to their end (rule Q2).
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
"""From when a queue is seen to be marked; far longer than `catalog.LATE_US`."""


def remove_empty_queues(engine: Engine, after: str | None) -> StepResult:
    """Bring some queues, or what is left over of them, a stage closer to their end.

    One that somebody has set to something stays: that would be lost. One that vanished is made
    anew at its next use.
    """
    names = engine.catalog.names_after(after, QUEUES_A_STEP)
    served = {queue for one in present(engine.store) for queue in one.queues}
    acts = sum(_advance(engine, name, is_served=name in served) for name in names)
    return StepResult(acts, after=names[-1] if len(names) == QUEUES_A_STEP else None)


def _advance(engine: Engine, name: str, *, is_served: bool) -> bool:
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
    if entry.leaving_us == 0:  # only now it is certain that others see it, too
        return catalog.mark_leaving(name, entry, engine.time.latest_us())
    if engine.time.earliest_us() - entry.leaving_us < WAIT_US:
        return False
    return catalog.narrow(name, entry) if first else catalog.remove(name, entry)


def _left(engine: Engine, name: str, shards: Iterable[int]) -> Iterator[bool]:
    """Tell of each place where something may be left of shards; the living before the dead."""
    store = engine.store
    for queue in (name, dead_queue(name)):
        for shard in shards:
            page = store.lanes(queue, shard, until_bucket=EVER, after=None, limit=1)
            yield bool(page.pointers)
    for shard in shards:
        yield bool(store.tail(name + HISTORY_SUFFIX, shard, after=None, limit=1).rows)
