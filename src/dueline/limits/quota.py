"""Quotas: how many jobs may be enqueued in a queue, or for a tenant in it.

A record holds what was taken from a quota. For a rate: how many in which part of the period. For a
depth: how many jobs waited when they were counted, and how many were taken before and since.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from dueline.core.clock import SECOND_US
from dueline.core.codec import encode
from dueline.core.engine import Engine
from dueline.core.ids import Ids
from dueline.core.queue_settings import QueueSettings, Quota, with_quota
from dueline.core.readable_records import Unreadable, unreadable, value_at
from dueline.core.store import Put, Records
from dueline.limits import rate
from dueline.limits.rate import GRAINS, Meter, Rate

KEEP_US: Final = 3600 * SECOND_US
"""How long after the last call the record of a depth expires; then jobs are counted again."""

COUNTED_US_MAX: Final = 60 * SECOND_US
"""Maximum age of a count of jobs: some leave the queue without a call."""

ROOM_US_MIN: Final = SECOND_US
ROOM_US_MAX: Final = 60 * SECOND_US
"""Callers are asked to wait this long for a depth of which nothing leaves."""

GRAIN_US: Final = SECOND_US // 10
"""What is taken ahead from a depth may be used until the end of such an interval."""

AHEAD: Final = 100
"""A process may take 1 / AHEAD of a quota ahead."""


@dataclass(frozen=True, slots=True)
class QuotaRecord:
    """What was taken from a quota.

    meter: of a rate. taken: how many, since the record was created. waiting: how many jobs waited
    when they were counted; at least `through` of the taken ones were among them or had ended.
    counted_us: when that was, 0: never. again_us: earliest time of the next count. lent: how many
    of the taken ones processes may not have used yet, until lent_us. left_us: when a count last
    showed that jobs had left; each_us: how long each took of the time before; 0: none has left.
    """

    meter: Meter = field(default_factory=Meter)
    taken: int = 0
    waiting: int = 0
    through: int = 0
    counted_us: int = 0
    again_us: int = 0
    lent: int = 0
    lent_us: int = 0
    left_us: int = 0
    each_us: int = 0


def rate_of(quota: Quota) -> Rate:
    """Return the rate of a quota that has one."""
    return Rate(quota.rate, quota.per_us)


def waiting(used: QuotaRecord) -> int:
    """Return the maximum number of waiting jobs, including all taken since the count."""
    return used.waiting + used.taken - used.through


def depth_left(used: QuotaRecord, quota: Quota) -> int:
    """Return for how many jobs there is room; 0 until jobs were counted."""
    return max(0, quota.depth - waiting(used)) if used.counted_us else 0


def is_to_be_counted(used: QuotaRecord, quota: Quota, need: int, now_us: int) -> bool:
    """Return whether to count jobs again: there is no room, or the count is old."""
    if not quota.depth or now_us < used.again_us:
        return False
    return depth_left(used, quota) < need or now_us - used.counted_us > COUNTED_US_MAX


def after_count(
    used: QuotaRecord, *, count: int, through: int, counted_us: int, again_us: int
) -> QuotaRecord:
    """Return the record after a count of waiting jobs, with how fast jobs leave."""
    after = replace(used, waiting=count, through=through, counted_us=counted_us, again_us=again_us)
    if not used.counted_us:
        return replace(after, left_us=counted_us)
    gone = waiting(used) - waiting(after)
    if gone <= 0:
        return after
    since_us = max(0, counted_us - (used.left_us or used.counted_us))
    return replace(after, left_us=counted_us, each_us=max(1, since_us // gone))


def room_in_us(used: QuotaRecord, quota: Quota, need: int, now_us: int) -> int:
    """Return in how long a depth probably has room: at the speed at which jobs have left so far.

    The longer none has left, the longer; at least a second if none has left yet.
    """
    still_us = max(0, now_us - used.left_us) if used.left_us else 0
    wait_us = (need - depth_left(used, quota)) * used.each_us - still_us
    if wait_us <= 0:
        wait_us = max(still_us, 0 if used.each_us else ROOM_US_MIN)
    return max(used.again_us - now_us, min(wait_us, ROOM_US_MAX))


def left(used: QuotaRecord, quota: Quota, now_us: int) -> int:
    """Return how many jobs may be taken now."""
    lefts = []
    if quota.depth:
        lefts.append(depth_left(used, quota))
    if quota.rate:
        lefts.append(rate.left(used.meter, rate_of(quota), now_us))
    return min(lefts)


def grain_us(quota: Quota) -> int:
    """Return how long a process may use what it takes ahead."""
    return max(1, quota.per_us // GRAINS) if quota.rate else GRAIN_US


def ahead_most(quota: Quota) -> int:
    """Return how many jobs a process may take ahead."""
    return min(number for number in (quota.depth, quota.rate) if number) // AHEAD


def grain_end_us(quota: Quota, now_us: int) -> int:
    """Return until when a take of now may be used: for a rate it counts as of then (rule N8)."""
    span_us = grain_us(quota)
    return -(-now_us // span_us) * span_us


def after_taking(
    used: QuotaRecord, quota: Quota, count: int, now_us: int, *, more: int, until_us: int
) -> QuotaRecord:
    """Return the record after taking `count` jobs, and `more` ahead."""
    meter = used.meter
    if quota.rate:
        meter = rate.after_taking(meter, rate_of(quota), count + more, now_us)
    lent = used.lent if now_us <= used.lent_us else 0
    return replace(
        used,
        meter=meter,
        taken=used.taken + count + more,
        lent=lent + more,
        lent_us=max(until_us, used.lent_us),
    )


def surely_used(used: QuotaRecord, now_us: int) -> int:
    """Return how many of the taken ones no process can use any more."""
    return used.taken - (used.lent if now_us <= used.lent_us else 0)


# Records


def key_of(quota: Quota) -> str:
    """Return the record key of a quota within its queue."""
    return "queue" if quota.scope == "queue" else f"tenant:{quota.tenant}"


def _partition(queue: str) -> str:
    return f"quotas/{queue}"


def read(records: Records, queue: str, quota: Quota) -> tuple[QuotaRecord, bytes]:
    """Read the record of a quota, and its version."""
    used, version = value_at(records, _partition(queue), key_of(quota), QuotaRecord)
    return used or QuotaRecord(), version


def unreadable_of(records: Records, queue: str) -> Iterator[Unreadable]:
    """Yield the damaged records of a queue's quotas."""
    return unreadable(records, _partition(queue), QuotaRecord)


def write(
    records: Records,
    queue: str,
    quota: Quota,
    used: QuotaRecord,
    *,
    now_us: int,
    expect: bytes,
    ids: Ids,
) -> bool:
    """Write the record of a quota, if it is unchanged since it was read.

    Raises: Unknown: it may or may not be written.
    """
    put = Put(
        key_of(quota),
        ids.token(),
        encode(used),
        expect=expect,
        expires_us=now_us + max(quota.per_us, KEEP_US),
    )
    return records.commit(_partition(queue), (put,))


# Settings and usage of a queue


class QuotaUsage(NamedTuple):
    """A quota, and how many jobs it admits now; without counts for the quota of each tenant.

    waiting: maximum number of its jobs that wait; None where there is no count. left: None where
    jobs would be counted first.
    """

    quota: Quota
    waiting: int | None = None
    left: int | None = None


def set_quota(engine: Engine, queue: str, quota: Quota) -> QueueSettings:
    """Set a quota of a queue, in place of the one with the same scope; an empty one is removed.

    Raises: as `Catalog.change`.
    """
    return engine.catalog.change(
        queue, lambda old: replace(old, quotas=with_quota(old.quotas, quota))
    )


def usage_of(engine: Engine, queue: str) -> list[QuotaUsage]:
    """Read how much of each quota of a queue is used."""
    now_us = engine.time.latest_us()
    usages = []
    for quota in engine.catalog.settings(queue).quotas:
        if quota.scope == "each":
            usages.append(QuotaUsage(quota))
            continue
        used, _ = read(engine.store, queue, quota)
        is_open = is_to_be_counted(used, quota, 1, now_us)
        usages.append(
            QuotaUsage(
                quota,
                waiting(used) if quota.depth and used.counted_us else None,
                None if is_open else left(used, quota, now_us),
            )
        )
    return usages
