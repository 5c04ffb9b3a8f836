"""What a queue, or a tenant in it, may still put in.

A record holds what was taken of a quota: of a rate, how many in which part of the span; of a
depth, how many jobs waited when they were counted, and how many were taken before and since.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from dueline.core.clock import SECOND_US
from dueline.core.codec import decode, encode
from dueline.core.engine import Engine
from dueline.core.ids import Ids
from dueline.core.pagination import record_at
from dueline.core.queue_settings import QueueSettings, Quota, with_quota
from dueline.core.readable_records import Unreadable, unreadable
from dueline.core.store import NO_VERSION, Put, Records
from dueline.limits import rate
from dueline.limits.rate import GRAINS, Meter, Rate

KEEP_US: Final = 3600 * SECOND_US
"""What is taken of a depth is forgotten so long after the last call; then jobs are counted."""

COUNTED_US_MAX: Final = 60 * SECOND_US
"""Jobs are counted again after so long, for what becomes of some without a call."""

GRAIN_US: Final = SECOND_US // 10
"""What is taken ahead of a depth is used until the end of such a span."""

AHEAD: Final = 100
"""So small a part of a quota a process may take ahead."""


@dataclass(frozen=True, slots=True)
class QuotaRecord:
    """What was taken of a quota.

    meter: of a rate. taken: how many were, since the record was made. waiting: how many jobs
    waited when they were counted, and at least `through` of those taken were among them or had
    gone. counted_us: when that was, 0: never. again_us: they are not counted again before.
    lent: how many of those taken processes may not have used yet, until lent_us.
    """

    meter: Meter = field(default_factory=Meter)
    taken: int = 0
    waiting: int = 0
    through: int = 0
    counted_us: int = 0
    again_us: int = 0
    lent: int = 0
    lent_us: int = 0


def rate_of(quota: Quota) -> Rate:
    """Give the rate of a quota that has one."""
    return Rate(quota.rate, quota.per_us)


def waiting(used: QuotaRecord) -> int:
    """Tell how many jobs wait at most: each that was taken since they were counted, too."""
    return used.waiting + used.taken - used.through


def depth_left(used: QuotaRecord, quota: Quota) -> int:
    """Tell for how many jobs there is room; none until jobs were counted."""
    return max(0, quota.depth - waiting(used)) if used.counted_us else 0


def is_to_be_counted(used: QuotaRecord, quota: Quota, need: int, now_us: int) -> bool:
    """Tell whether jobs are to be counted again: where there is no room, or it was long ago."""
    if not quota.depth or now_us < used.again_us:
        return False
    return depth_left(used, quota) < need or now_us - used.counted_us > COUNTED_US_MAX


def left(used: QuotaRecord, quota: Quota, now_us: int) -> int:
    """Tell how many may be taken now."""
    lefts = []
    if quota.depth:
        lefts.append(depth_left(used, quota))
    if quota.rate:
        lefts.append(rate.left(used.meter, rate_of(quota), now_us))
    return min(lefts)


def grain_us(quota: Quota) -> int:
    """Tell how long what is taken ahead may be used at most."""
    return max(1, quota.per_us // GRAINS) if quota.rate else GRAIN_US


def ahead_most(quota: Quota) -> int:
    """Tell how many a process may take ahead at most."""
    return min(number for number in (quota.depth, quota.rate) if number) // AHEAD


def grain_end_us(quota: Quota, now_us: int) -> int:
    """Tell until when what is taken now may be used: of a rate it counts as of then (rule D3)."""
    span_us = grain_us(quota)
    return -(-now_us // span_us) * span_us


def after_taking(
    used: QuotaRecord, quota: Quota, count: int, now_us: int, *, more: int, until_us: int
) -> QuotaRecord:
    """Take so many, and some more ahead."""
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
    """Tell how many of those taken are not to be used any more."""
    return used.taken - (used.lent if now_us <= used.lent_us else 0)


# Records


def key_of(quota: Quota) -> str:
    """Name the record of a quota within its queue."""
    return "queue" if quota.scope == "queue" else f"tenant:{quota.tenant}"


def _partition(queue: str) -> str:
    return f"quotas/{queue}"


def read(records: Records, queue: str, quota: Quota) -> tuple[QuotaRecord, bytes]:
    """Read what was taken of a quota, and the version of what was read."""
    record = record_at(records, _partition(queue), key_of(quota))
    if record is None:
        return QuotaRecord(), NO_VERSION
    return decode(record.value, QuotaRecord), record.version


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
    """Write what was taken of a quota, if it stands as it was read.

    Raises: Unknown: it was written or not.
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
    found = []
    for one in engine.catalog.settings(queue).quotas:
        if one.scope == "each":
            found.append(QuotaUsage(one))
            continue
        used, _ = read(engine.store, queue, one)
        is_open = is_to_be_counted(used, one, 1, now_us)
        found.append(
            QuotaUsage(
                one,
                waiting(used) if one.depth and used.counted_us else None,
                None if is_open else left(used, one, now_us),
            )
        )
    return found
