"""Status of the shards of queues: what is listed in them, and their lag."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from dueline.coordination.worker_registry import Presence
from dueline.core.check import Check
from dueline.core.clock import SECOND_US
from dueline.core.durations import span_text
from dueline.core.engine import Engine
from dueline.core.lane import Lane, Marks, bucket_of, tenant_of
from dueline.core.pagination import LANES_AT_ONCE, first_of_each, first_pages, lane_pages, parts_of
from dueline.core.store import LanePage
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
    store, settings = engine.store, engine.catalog.settings(queue)
    now_us = engine.time.latest_us()
    numbers = range(settings.shards_read)
    today = bucket_of(now_us, settings.width_us)
    first = first_pages(store, queue, dict.fromkeys(numbers), until_bucket=today)
    shards: list[tuple[set[Lane], LanePage]] = []
    heads: dict[Lane, int | None] = {}
    for number in numbers:
        lanes: set[Lane] = set()
        for page in lane_pages(store, queue, number, until_bucket=today, first=first.get(number)):
            lanes.update(pointer.lane for pointer in page.pointers)
            heads |= page.heads
            if len(lanes) >= LANES_MAX:
                break
        shards.append((lanes, page))

    def is_paused(lane: Lane) -> bool:
        return tenant_of(lane) in settings.paused_tenants

    unknown = [
        lane for lanes, _ in shards for lane in lanes if lane not in heads and not is_paused(lane)
    ]
    for part in parts_of(unknown, LANES_AT_ONCE):
        for lane, jobs in first_of_each(store, part, until_us=now_us, limit=1):
            heads[lane] = jobs.jobs[0].at_us if jobs.jobs else None
    waiting = BusyLimits(engine)

    def ready_since_us(lanes: Iterable[Lane]) -> int | None:
        ready = sorted(
            (at_us, lane)
            for lane in lanes
            if not is_paused(lane) and (at_us := heads[lane]) is not None and at_us <= now_us
        )
        return next((at_us for at_us, lane in ready if not waiting.has(lane)), None)

    return [
        Shard(
            queue, number, number < settings.shards, len(lanes), page.marks,
            ready_since_us(lanes), is_capped=page.after is not None,
        )
        for number, (lanes, page) in enumerate(shards)
    ]  # fmt: skip


def neglected(engine: Engine, names: Iterable[str], workers: Sequence[Presence]) -> Iterator[Check]:
    """Yield shards of some queues with a lag although workers serve them."""
    served = {name for worker in workers for name in worker.queues}
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
