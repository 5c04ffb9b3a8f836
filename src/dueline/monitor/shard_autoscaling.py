"""Give queues more shards as their load grows, and fewer an hour after it fell.

Only those whose settings leave it open, and only where each shard is a round trip: on one machine
one shard is as fast as many. Each worker prefers shards of its own, so there should be as many as
workers; and a lane is a partition, which should not become large. Jobs stay where they are: another
number concerns new ones alone, and shards that are left over go once they are empty (`vanish`).
"""

from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Final, NamedTuple

from dueline.coordination.worker_registry import present
from dueline.core.clock import SECOND_US
from dueline.core.codec import decode, encode
from dueline.core.engine import Engine
from dueline.core.lane import Lane, bucket_of
from dueline.core.maintenance import StepResult
from dueline.core.pagination import jobs_in
from dueline.core.queue_settings import QueueSettings, with_shards
from dueline.monitor import notes

EVERY_US: Final = 60 * SECOND_US
QUEUES_A_STEP: Final = 20

ROWS_MAX: Final = 10_000
"""A lane should hold no more: a third of what its partition bears, as shards come a minute late."""

LANES: Final = 4
"""Of one shard so many lanes are looked at."""

CALM_US: Final = 3600 * SECOND_US
"""For so long fewer shards must have been enough."""

_KIND: Final = "shards"


class Span(NamedTuple):
    """How many shards a queue's load asked for at most, since when."""

    since_us: int
    shards: int


def autoscale_shards(engine: Engine, after: str | None) -> StepResult:
    """Look at some queues, and change how many shards they have where load asks for it."""
    if engine.store.scope != "network":
        return StepResult()
    names = engine.catalog.names_after(after, QUEUES_A_STEP)
    workers = present(engine.store)
    acts, puts = 0, []
    for name in names:
        settings = engine.catalog.settings(name)
        if settings.shards_range:
            serving = sum(name in one.queues for one in workers)
            asked = max(1, serving, _asked_by_jobs(engine, name, settings))
            chosen, span = _chosen(settings, _read(engine, name), asked, engine.time.latest_us())
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
    """Tell how many shards there should be, and what is to be remembered of the load."""
    more = with_shards(settings, asked).shards
    if more > settings.shards or span is None:
        return max(more, settings.shards), Span(now_us, 0)
    most = max(asked, span.shards)
    if now_us - span.since_us < CALM_US:
        return settings.shards, Span(span.since_us, most)
    fewer = with_shards(settings, most).shards
    return fewer if 2 * fewer <= settings.shards else settings.shards, Span(now_us, asked)


def _asked_by_jobs(engine: Engine, name: str, settings: QueueSettings) -> int:
    """Tell how many shards would keep lanes small, as far as some lanes tell.

    Those of the last shard: in others lie jobs that came when there were fewer.
    """
    shard, today = settings.shards - 1, bucket_of(engine.time.latest_us(), settings.width_us)
    page = engine.store.lanes(name, shard, until_bucket=today, after=None, limit=LANES)
    rows = max((_count(engine, pointer.lane) for pointer in page.pointers), default=0)
    return 2 * settings.shards if rows >= ROWS_MAX else -(-rows * settings.shards // ROWS_MAX)


def _count(engine: Engine, lane: Lane) -> int:
    return sum(1 for _ in islice(jobs_in(engine.store, lane), ROWS_MAX))


def _in_place_of(chosen: int, known: int, old: QueueSettings) -> QueueSettings:
    """Change what was looked at, and nothing that somebody else has set meanwhile."""
    is_known = bool(old.shards_range) and old.shards == known
    return replace(old, shards=chosen) if is_known else old


def _read(engine: Engine, name: str) -> Span | None:
    record = notes.read(engine.store, _KIND, name)
    return None if record is None else decode(record.value, Span)
