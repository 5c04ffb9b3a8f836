"""Shards, workers and results as tables."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from dueline.coordination import worker_registry
from dueline.coordination.leases import Grant, grants
from dueline.coordination.worker_registry import Presence
from dueline.core.engine import Engine
from dueline.jobs.shard_status import shards_of
from dueline.spark.runtime.options import Options, chosen_queues
from dueline.streams import groups, resharding

Values = Mapping[str, Any]
"""A row, by column; a column that is absent is null."""


class StatusTable(NamedTuple):
    """A small table that one task reads."""

    table: str


def rows_of(table: str, engine: Engine, options: Options) -> Iterator[Values]:
    """Yield the rows of a small table."""
    if table == "workers":
        for worker in worker_registry.present(engine.store):
            yield _worker(worker)
        return
    only = options.shards()
    for name in chosen_queues(options, engine.catalog):
        for shard in shards_of(engine, name):
            if only is not None and shard.number not in only:
                continue
            yield {
                "queue": name, "shard": shard.number, "takes_new": shard.takes_new,
                "lanes": shard.lanes, "swept": shard.marks.swept, "closed": shard.marks.closed,
                "oldest_due": shard.ready_since_us,
            }  # fmt: skip
    if options.names("queue"):
        return
    for stream, settings in resharding.streams(engine.store):
        for group in groups.registered(engine.store, stream):
            numbers = resharding.shards_of(settings)
            chosen = [number for number in numbers if only is None or number in only]
            for values in _of_group(engine, stream, group, chosen):
                yield {**values, "takes_new": not resharding.is_old(settings, values["shard"])}


def _worker(row: Presence) -> Values:
    host, _, rest = row.worker.partition(":")
    return {
        "worker": row.worker, "host": host, "pid": int(rest.partition(":")[0] or 0),
        "version": row.version, "queues": row.queues, "tasks": row.tasks, "slots": row.slots,
        "held": row.held, "started": row.started_us, "heartbeat": row.beat_us,
        "clock_skew_us": row.clock_skew_us,
    }  # fmt: skip


def _of_group(engine: Engine, stream: str, group: str, shards: Sequence[int]) -> Iterator[Values]:
    now_us = engine.time.earliest_us()
    places = groups.places(engine.store, stream, group)
    leases = grants(engine.store, groups.leases_at(stream, group))
    for lag in groups.lags(engine.store, stream, group, shards, now_us=now_us):
        lease = leases.get(str(lag.shard), Grant(0, "", 0, 0))
        place = places[lag.shard].place if lag.shard in places else None
        is_held = lease.until_us > now_us
        yield {
            "stream": stream, "group": group, "shard": lag.shard,
            "epoch": lease.epoch, "owner": lease.holder if is_held else None,
            "lease_until": lease.until_us or None, "rows_read": lag.read,
            "checkpoint": None if place is None else json.dumps([place[0], place[1].hex()]),
            "backlog": lag.rows, "oldest_due": now_us - lag.waits_us if lag.rows else None,
        }  # fmt: skip
