"""Give queues more shards as their load grows, and fewer an hour after it fell.

Only for queues whose settings allow it, and only where each shard is a round trip: on one machine
one shard is as fast as many. Each worker prefers its own shards, so there should be as many shards
as workers; and a lane is a partition, which should not become large. Jobs stay where they are: the
number applies to new jobs, and unused shards are removed once they are empty (`empty_queues`).
"""

from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Final, NamedTuple

from dueline.coordination import notes
from dueline.coordination.worker_registry import present
from dueline.core.clock import SECOND_US
from dueline.core.codec import encode
from dueline.core.engine import Engine
from dueline.core.lane import Lane, bucket_of
from dueline.core.maintenance import StepResult
from dueline.core.pagination import jobs_in
from dueline.core.queue_settings import QueueSettings, with_shards

EVERY_US: Final = 60 * SECOND_US
QUEUES_A_STEP: Final = 20

ROWS_MAX: Final = 10_000
"""Target maximum for a lane: a third of the partition limit, as scaling lags by a minute."""

LANES: Final = 4
"""Number of lanes of one shard that are counted."""

CALM_US: Final = 3600 * SECOND_US
"""How long fewer shards must have been enough."""

_KIND: Final = "shards"


class Span(NamedTuple):
    """The maximum number of shards that the load of a queue needed, and since when."""

    since_us: int
    shards: int


def autoscale_shards(engine: Engine, after: str | None) -> StepResult:
    """Check some queues, and change their number of shards if the load needs it."""
    if engine.store.scope != "network":
        return StepResult()
    now_us = engine.time.latest_us()
    names = engine.catalog.names_after(after, QUEUES_A_STEP)
    workers = present(engine.store)
    acts, puts = 0, []
    for name in names:
        settings = engine.catalog.settings(name)
        if settings.shards_range:
            serving = sum(name in worker.queues for worker in workers)
            asked = max(1, serving, _asked_by_jobs(engine, name, settings, now_us))
            chosen, span = _chosen(settings, _read(engine, name), asked, now_us)
            if chosen != settings.shards:
                engine.catalog.change(name, partial(_in_place_of, chosen, settings.shards))
                acts += 1
            expires_us = span.since_us + 2 * CALM_US
            version = engine.ids.token()
            puts.append(notes.put(_KIND, name, encode(span), version, expires_us=expires_us))
    return StepResult(acts, names[-1] if len(names) == QUEUES_A_STEP else None, puts)


def _chosen(
    settings: QueueSettings, span: Span | None, asked: int, now_us: int
) -> tuple[int, Span]:
    """Return how many shards there should be, and the note about the load."""
    more = with_shards(settings, asked).shards
    if more > settings.shards or span is None:
        return max(more, settings.shards), Span(now_us, 0)
    most = max(asked, span.shards)
    if now_us - span.since_us < CALM_US:
        return settings.shards, Span(span.since_us, most)
    fewer = with_shards(settings, most).shards
    return fewer if 2 * fewer <= settings.shards else settings.shards, Span(now_us, asked)


def _asked_by_jobs(engine: Engine, name: str, settings: QueueSettings, now_us: int) -> int:
    """Return how many shards would keep lanes small, estimated from lanes of the last shard.

    Other shards hold jobs from times when there were fewer shards.
    """
    shard, today = settings.shards - 1, bucket_of(now_us, settings.width_us)
    page = engine.store.lanes(name, shard, until_bucket=today, after=None, limit=LANES)
    rows = max((_count(engine, pointer.lane) for pointer in page.pointers), default=0)
    return 2 * settings.shards if rows >= ROWS_MAX else -(-rows * settings.shards // ROWS_MAX)


def _count(engine: Engine, lane: Lane) -> int:
    return sum(1 for _ in islice(jobs_in(engine.store, lane), ROWS_MAX))


def _in_place_of(chosen: int, known: int, old: QueueSettings) -> QueueSettings:
    """Return the settings with the chosen shards, if they are as they were read."""
    is_known = bool(old.shards_range) and old.shards == known
    return replace(old, shards=chosen) if is_known else old


def _read(engine: Engine, name: str) -> Span | None:
    return notes.value(engine.store, _KIND, name, Span)
