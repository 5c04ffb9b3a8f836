"""Shards of queues: what is listed in them, how late they are."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from dueline.clock import SECOND_US
from dueline.lane import Lane, Marks, bucket_of, tenant_of
from dueline.limited import Waiting
from dueline.paging import lane_pages
from dueline.queue import Queues

LANES_MAX = 10_000
"""How many lanes of a shard are looked at."""

LATE_US = 300 * SECOND_US
"""A shard whose oldest ready job waits for longer is neglected, if its queue is served."""


class Shard(NamedTuple):
    """One shard of a queue.

    takes_new: new jobs come to it; one that is left over from a larger number is only read.
    lanes: those listed that may hold jobs now. ready_since_us: since when its oldest job that
    is ready waits, aside of paused tenants and of what waits for permits; None without one.
    is_capped: there are more lanes than were looked at.
    """

    queue: str
    number: int
    takes_new: bool
    lanes: int
    marks: Marks
    ready_since_us: int | None
    is_capped: bool

    def lag_us(self, now_us: int) -> int:
        """Tell how late the shard is; 0 where nothing is ready."""
        return 0 if self.ready_since_us is None else max(0, now_us - self.ready_since_us)


def shards_of(queues: Queues, queue: str) -> Sequence[Shard]:
    """Look at all shards of a queue."""
    settings = queues.catalog.settings(queue)
    today = bucket_of(queues.time.latest_us(), settings.width_us)
    return [
        _look(queues, queue, number, today, takes_new=number < settings.shards)
        for number in range(settings.shards_read)
    ]


def _look(queues: Queues, queue: str, number: int, today: int, *, takes_new: bool) -> Shard:
    now_us = queues.time.latest_us()
    settings = queues.catalog.settings(queue)
    lanes: set[Lane] = set()
    heads: list[tuple[int, Lane]] = []
    for page in lane_pages(queues.store, queue, number, until_bucket=today):
        new = {pointer.lane for pointer in page.pointers} - lanes
        heads += [
            (at_us, lane)
            for lane in new
            if tenant_of(lane) not in settings.paused_tenants
            and (at_us := _head(queues, lane, page.heads, now_us))
        ]
        lanes |= new
        if len(lanes) >= LANES_MAX:
            break
    waiting = Waiting(queues)
    ready = sorted(head for head in heads if head[0] <= now_us)
    ready_us = (at_us for at_us, lane in ready if not waiting.has(lane))
    return Shard(
        queue, number, takes_new, len(lanes), page.marks,
        next(ready_us, None), is_capped=page.after is not None,
    )  # fmt: skip


def _head(queues: Queues, lane: Lane, heads: Mapping[Lane, int | None], now_us: int) -> int | None:
    """Tell when the first job of a lane was due, if it is."""
    if lane in heads:
        return heads[lane]
    jobs = queues.store.scan(lane, after=None, until_us=now_us, limit=1).jobs
    return jobs[0].at_us if jobs else None
