"""Which lane to visit next."""

from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import NamedTuple

from dueline.lane import Lane, Pointer
from dueline.store import Want

SHARD_SHARE_MIN = 100
"""Wants for fewer jobs are not spread over a queue's shards: a claim from each would cost more."""


class Prospect(NamedTuple):
    """The oldest lane of a (queue, shard, priority, tenant) that may hold jobs that are due."""

    priority: int
    tenant: str
    listing: int
    lane: Lane


def prospects(
    pointers: Iterable[Pointer], next_at_us: Mapping[Lane, int | None], now_us: int
) -> list[Prospect]:
    """Pick the lanes worth a visit: one for each (queue, shard, priority, tenant).

    A lane whose last visit said that nothing is due, or that it is empty, hides no other.

    Args:
      pointers: the lane list, in any order.
      next_at_us: what visits since the last reading said; a lane not in it is unknown.
    """
    oldest: dict[tuple[str, int, int, str], Pointer] = {}
    for pointer in pointers:
        lane = pointer.lane
        if lane in next_at_us:
            at_us = next_at_us[lane]
            if at_us is None or at_us > now_us:
                continue
        kind = (lane.queue, lane.shard, lane.priority, lane.tenant)
        best = oldest.get(kind)
        if best is None or (pointer.listing, lane.bucket) < (best.listing, best.lane.bucket):
            oldest[kind] = pointer
    return [Prospect(p.lane.priority, p.lane.tenant, p.listing, p.lane) for p in oldest.values()]


def plan(
    found: Iterable[Prospect], *, limit: int, room: Mapping[str, int], turn: int
) -> list[Want]:
    """Order lanes into wants: larger priority first, then tenants in turn, then older lanes.

    A queue's shards share what is wanted of it if it is much: they are claimed from at once.

    Args:
      found: the prospects, one for each (queue, shard, priority, tenant).
      limit: jobs wanted in all.
      room: for queues with slots of their own, how many jobs each may still take. A lane may
        turn out to be empty, so each of a queue's lanes wants as much as there is room for:
        whoever claims keeps to the room in all.
      turn: grows with each plan; tenants of one priority start at another one each time.
    """
    wants: list[Want] = []
    ordered = sorted(found, key=lambda p: (-p.priority, p.tenant, p.listing, p.lane))
    for _, same in groupby(ordered, key=lambda p: p.priority):
        tenants = [list(lanes) for _, lanes in groupby(same, key=lambda p: p.tenant)]
        share = -(-limit // len(tenants))
        start = turn % len(tenants)
        for lanes in tenants[start:] + tenants[:start]:
            shards = Counter(prospect.lane.queue for prospect in lanes)
            for prospect in lanes:
                queue = prospect.lane.queue
                most = max(-(-share // shards[queue]), min(share, SHARD_SHARE_MIN))
                most = min(most, room.get(queue, share))
                if most > 0:
                    wants.append(Want(prospect.lane, most))
    return wants
