"""Status of the shards of queues: what is listed in them, and their lag."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from dueline.coordination.worker_registry import Presence
from dueline.core.check import Check
from dueline.core.clock import SECOND_US
from dueline.core.durations import span_text
from dueline.core.engine import Engine
from dueline.core.lane import Lane, Marks, bucket_of, tenant_of
from dueline.core.pagination import at_once, lane_pages
from dueline.limits.usage import BusyLimits

LANES_MAX = 10_000
"""Maximum number of lanes of a shard that are read."""

LATE_US = 300 * SECOND_US
"""A shard whose oldest ready job waits longer than this is neglected, if its queue is served."""


class Shard(NamedTuple):
    """One shard of a queue.

    Attributes:
      takes_new: New jobs are added to it; one left over from a larger number is only read.
      lanes: Listed lanes that may hold jobs now.
      ready_since_us: Since when its oldest ready job waits, except for paused tenants and jobs that
          wait for permits; None without one.
      is_capped: There are more lanes than were read.
    """

    queue: str
    number: int
    takes_new: bool
    lanes: int
    marks: Marks
    ready_since_us: int | None
    is_capped: bool

    def lag_us(self, now_us: int) -> int:
        """Return the lag of the shard; 0 if no job is ready."""
        return 0 if self.ready_since_us is None else max(0, now_us - self.ready_since_us)


def shards_of(engine: Engine, queue: str) -> Sequence[Shard]:
    """Return the status of all shards of a queue."""
    settings = engine.catalog.settings(queue)
    today = bucket_of(engine.time.latest_us(), settings.width_us)
    return at_once(
        engine.store,
        lambda number: _look(engine, queue, number, today, takes_new=number < settings.shards),
        range(settings.shards_read),
    )


def _look(engine: Engine, queue: str, number: int, today: int, *, takes_new: bool) -> Shard:
    now_us = engine.time.latest_us()
    settings = engine.catalog.settings(queue)
    lanes: set[Lane] = set()
    heads: list[tuple[int, Lane]] = []
    for page in lane_pages(engine.store, queue, number, until_bucket=today):
        new = {pointer.lane for pointer in page.pointers} - lanes
        heads += [
            (at_us, lane)
            for lane in new
            if tenant_of(lane) not in settings.paused_tenants
            and (at_us := _head(engine, lane, page.heads, now_us))
        ]
        lanes |= new
        if len(lanes) >= LANES_MAX:
            break
    waiting = BusyLimits(engine)
    ready = sorted(head for head in heads if head[0] <= now_us)
    ready_us = (at_us for at_us, lane in ready if not waiting.has(lane))
    return Shard(
        queue, number, takes_new, len(lanes), page.marks,
        next(ready_us, None), is_capped=page.after is not None,
    )  # fmt: skip


def _head(engine: Engine, lane: Lane, heads: Mapping[Lane, int | None], now_us: int) -> int | None:
    """Return when the first job of a lane was due, if it is due."""
    if lane in heads:
        return heads[lane]
    jobs = engine.store.scan(lane, after=None, until_us=now_us, limit=1).jobs
    return jobs[0].at_us if jobs else None


def neglected(engine: Engine, names: Iterable[str], workers: Sequence[Presence]) -> Iterator[Check]:
    """Yield shards of some queues with a lag although workers serve them."""
    served = {name for one in workers for name in one.queues}
    for name in sorted(served.intersection(names)):
        if engine.catalog.settings(name).is_paused:
            continue
        now_us = engine.time.latest_us()
        for shard in shards_of(engine, name):
            if shard.lag_us(now_us) > LATE_US:
                yield Check(
                    f"queue {name}, shard {shard.number}",
                    "warning",
                    f"its oldest ready job waits for {span_text(shard.lag_us(now_us))}",
                    f"Start more workers, or see `dueline queues show {name}`.",
                )
