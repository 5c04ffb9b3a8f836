"""Decides which lanes to claim from next. Hot path: the benchmark `tenants`."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from itertools import groupby, zip_longest
from types import MappingProxyType
from typing import Any, NamedTuple

from dueline.core.lane import PRIORITY_MAX, TASK_MARK, Lane, Pointer, tenant_of
from dueline.core.store import Want
from dueline.core.tuples import field, made
from dueline.jobs.tenant_weights import TenantWeights

SHARD_SHARE_MIN = 500
"""Smaller wants are not spread over a queue's shards: a claim from each would cost more."""


class Prospect(NamedTuple):
    """The oldest lane of a (queue, shard, priority, tenant) that may hold due jobs.

    Jobs of a tenant with other limits have lanes, and so a prospect, of their own.
    priority: the lane's, raised by the wait of its head in queues with aging.
    """

    priority: int
    tenant: str
    listing: int
    lane: Lane


NO_AGING: Mapping[str, int] = MappingProxyType({})
NOT_KEPT: Mapping[Lane, int] = MappingProxyType({})


def aged(priority: int, waited_us: int, aging_us: int) -> int:
    """Raise a priority by one step for each `aging_us` waited; 0: never. At most the largest."""
    if not aging_us:
        return priority
    return min(PRIORITY_MAX, priority + max(0, waited_us) // aging_us)


def prospects(
    pointers: Iterable[Pointer],
    next_at_us: Mapping[Lane, int | None],
    now_us: int,
    aging_us: Mapping[str, int] = NO_AGING,
    since_us: Mapping[Lane, int] = NOT_KEPT,
) -> list[Prospect]:
    """Return the lanes worth a claim: one for each (queue, shard, priority, tenant).

    A lane that is known to be empty, or to hold no due job, hides no other. If one hides a younger
    lane, prospects of lower priorities are left out: if the older lane turns out to be empty, the
    younger one must be claimed before them. The caller plans again.

    Args:
        pointers: The lane list, in any order.
        next_at_us: What claims found out since the last read; other lanes are unknown.
        now_us: The store's time.
        aging_us: For queues with aging, how long a job waits to gain one step of priority.
        since_us: For lanes that were postponed, when their first jobs became due.
    """
    oldest: dict[tuple[str, int, int, str], Pointer] = {}
    hiding: set[tuple[str, int, int, str]] = set()
    for pointer in pointers:
        lane = pointer.lane
        at_us = next_at_us.get(lane, now_us)
        if at_us is None or at_us > now_us:
            continue
        queue, shard, bucket, priority, tenant = lane
        kind = (queue, shard, priority, tenant)
        best = oldest.get(kind)
        if best is not None and best.lane != lane:
            hiding.add(kind)
        if best is None or (pointer.listing, bucket) < (best.listing, best.lane.bucket):
            oldest[kind] = pointer
    if aging_us:
        candidates = []
        for listing, lane in oldest.values():
            head_us = since_us.get(lane, next_at_us.get(lane))
            waited_us = 0 if head_us is None else now_us - head_us
            priority = aged(lane.priority, waited_us, aging_us.get(lane.queue, 0))
            candidates.append(Prospect(priority, tenant_of(lane), listing, lane))
    else:
        candidates = made(
            Prospect,
            [(lane.priority, tenant_of(lane), listing, lane) for listing, lane in oldest.values()],
        )
    if hiding:
        least = max(
            lane.priority for kind, lane in zip(oldest, candidates, strict=True) if kind in hiding
        )
        candidates = [prospect for prospect in candidates if prospect.priority >= least]
    return candidates


def plan(
    candidates: Iterable[Prospect],
    *,
    limit: int,
    room: Mapping[str, int],
    turn: int,
    others: Collection[tuple[str, int]] = (),
) -> list[Want]:
    """Order lanes into wants: larger priority first, then tenants in turn, then older lanes.

    Lanes of tasks, where functions go on that have begun, take turns with others of their tenant.

    If many jobs of a queue are wanted, its shards share them, since they are claimed from at once.

    Args:
        candidates: The prospects, one for each (queue, shard, priority, tenant).
        limit: Number of jobs wanted in all.
        room: Free slots of queues with their own slots. A lane may be empty, so each lane of a
            queue wants as many jobs as there are slots: the claimer keeps to the total.
        turn: Grows with each plan; tenants of one priority start at another one each time.
        others: Queues and shards that other workers prefer: of equally old lanes, those come last.
    """
    wants: list[tuple[Lane, int]] = []
    order: Callable[[Prospect], Any] = partial(_order_beside, others) if others else _order_of
    for _, same in groupby(_ordered(list(candidates), order), key=_priority_of):
        tenants = [list(lanes) for _, lanes in groupby(same, key=_tenant_of)]
        share = -(-limit // len(tenants))
        start = turn % len(tenants)
        for lanes in tenants[start:] + tenants[:start]:
            if len(lanes) == 1:  # as for most tenants, if there are many
                lane = lanes[0].lane
                wants.append((lane, min(share, room.get(lane.queue, share)) if room else share))
                continue
            shards = Counter(prospect.lane.queue for prospect in lanes)
            for _, _, _, lane in lanes:
                most = max(-(-share // shards[lane.queue]), min(share, SHARD_SHARE_MIN))
                wants.append((lane, min(most, room.get(lane.queue, share))))
    return made(Want, [want for want in wants if want[1] > 0])


def _ordered(candidates: Sequence[Prospect], order: Callable[[Prospect], Any]) -> list[Prospect]:
    """Sort lanes by priority, then by an order that begins with the tenant.

    Of each tenant, the lanes of tasks and its other lanes take turns (rule D16): those whose turn
    was longer ago are first in `candidates`.
    """
    ordered = sorted(candidates, key=order)
    if any(TASK_MARK in prospect.lane.tenant for prospect in candidates):  # rarely
        turns: dict[tuple[int, str, bool], int] = {}
        for prospect in candidates:
            turns.setdefault(_turn_of(prospect), len(turns))
        ordered.sort(key=lambda prospect: (prospect.tenant, turns[_turn_of(prospect)]))
    ordered.sort(key=_priority_of, reverse=True)
    return ordered


def _turn_of(prospect: Prospect) -> tuple[int, str, bool]:
    return prospect.priority, prospect.tenant, TASK_MARK in prospect.lane.tenant


def _order_beside(others: Collection[tuple[str, int]], prospect: Prospect) -> tuple[object, ...]:
    lane = prospect.lane
    return prospect.tenant, prospect.listing, (lane.queue, lane.shard) in others, lane


def weighed(candidates: Iterable[Prospect], weights: TenantWeights, limit: int) -> list[Want]:
    """Order lanes into wants as `plan` does, but by the weights of tenants.

    A lane may hold less than its tenant's share, so each wants all of it. The claimer keeps to the
    limit, and plans again. So each tenant's first lane comes before the second one of any: lanes of
    a sharded queue would otherwise use up the limit before the next tenant.
    """
    candidates = list(candidates)
    ordered = _ordered(candidates, _order_of)
    weights.present({(want.lane.priority, want.tenant) for want in ordered})
    wants: list[Want] = []
    for _, same in groupby(ordered, key=_priority_of):
        lanes: dict[tuple[int, str], list[Lane]] = {}
        for prospect in same:
            lanes.setdefault((prospect.lane.priority, prospect.tenant), []).append(prospect.lane)
        shares = weights.shares(lanes, limit)
        rounds = zip_longest(*(lanes[kind] for kind in shares))
        wants += [
            Want(lane, share)
            for turn in rounds
            for lane, share in zip(turn, shares.values(), strict=True)
            if lane is not None
        ]
    return wants


_order_of = field(Prospect, "tenant", "listing", "lane")  # within a priority
_priority_of, _tenant_of = field(Prospect, "priority"), field(Prospect, "tenant")
