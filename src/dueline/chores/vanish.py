"""Let queues vanish of which nothing is left, and that nobody serves.

Whoever puts a job into a queue has read of it first, or looks afterwards (rule Q1). So a queue is
marked first, and goes when all who had read of it before have come to their end (rule Q2).
"""

from collections.abc import Iterator

from dueline.chores.chore import Report
from dueline.clock import SECOND_US
from dueline.history import HISTORY_SUFFIX
from dueline.lane import dead_queue
from dueline.paging import EVER
from dueline.queue import Queues
from dueline.recipes.registry import present

EVERY_US = 1800 * SECOND_US
QUEUES_A_STEP = 50

WAIT_US = 600 * SECOND_US
"""From when a queue is seen to be marked; far longer than `catalog.LATE_US`."""


def vanish(queues: Queues, after: str | None) -> Report:
    """Bring some queues a stage closer to their end, if nobody uses them.

    One that somebody has set to something stays: that would be lost. One that vanished is made
    anew at its next use.
    """
    names = queues.catalog.names_after(after, QUEUES_A_STEP)
    served = {queue for one in present(queues.store) for queue in one.queues}
    acts = sum(_advance(queues, name) for name in names if name not in served)
    return Report(acts, after=names[-1] if len(names) == QUEUES_A_STEP else None)


def _advance(queues: Queues, name: str) -> bool:
    catalog = queues.catalog
    entry = catalog.entry(name)
    if entry is None or entry.settings != catalog.defaults:
        return False
    if any(_left(queues, name, entry.settings.shards_read)):
        return False
    if entry.leaving_us is None:
        return catalog.mark_leaving(name, entry, 0)
    if entry.leaving_us == 0:  # only now it is certain that others see it, too
        return catalog.mark_leaving(name, entry, queues.time.latest_us())
    if queues.time.earliest_us() - entry.leaving_us < WAIT_US:
        return False
    return catalog.remove(name, entry)


def _left(queues: Queues, name: str, shards: int) -> Iterator[bool]:
    """Tell of each place where something may be left of a queue; the living before the dead."""
    store = queues.store
    for queue in (name, dead_queue(name)):
        for shard in range(shards):
            page = store.lanes(queue, shard, until_bucket=EVER, after=None, limit=1)
            yield bool(page.pointers)
    for shard in range(shards):
        yield bool(store.tail(name + HISTORY_SUFFIX, shard, after=None, limit=1).rows)
