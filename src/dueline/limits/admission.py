"""Decides whether a call may enqueue its jobs, by the quotas of its queue.

Each quota that applies to a call is drawn from before the jobs are stored (rule N6). Waiting jobs
are not counted for each call: a stored count is used, to which all jobs taken since are added.
Only if that leaves no room are the jobs counted again, and counting takes a small part of the time.
"""

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, NamedTuple

from dueline.core.clock import SECOND_US, Clock, StoreTime
from dueline.core.durations import span_text
from dueline.core.errors import Conflict, QuotaExceeded, StoreUnavailable, Unknown
from dueline.core.ids import Ids
from dueline.core.job import Job
from dueline.core.lane import Lane, tenant_of
from dueline.core.pagination import EVER, jobs_in, lane_pages
from dueline.core.queue_catalog import Catalog
from dueline.core.queue_settings import Quota, quotas_on
from dueline.core.store import Store
from dueline.limits import quota as quotas
from dueline.limits import rate
from dueline.limits.quota import QuotaRecord

COUNTING_IN: Final = 20
"""Counting jobs takes at most 1/COUNTING_IN of the time."""

AGAIN_US_MIN: Final = SECOND_US // 100
GATES_MAX: Final = 10_000
_ROUNDS_MAX: Final = 50


@dataclass(slots=True)
class _Gate:
    """Jobs that a process took from a quota ahead of calls.

    Attributes:
      left: How many are left.
      until_us: Until when they may be used.
      used: How many were used in this span.
      before: How many were used in the span directly before.
    """

    lock: threading.Lock = field(default_factory=threading.Lock)
    left: int = 0
    until_us: int = 0
    used: int = 0
    before: int = 0

    def move_on(self, now_us: int, until_us: int, grain_us: int) -> None:
        """Drop what is left from an earlier span."""
        if now_us > self.until_us:
            self.before = self.used if now_us <= self.until_us + grain_us else 0
            self.left = self.used = 0
            self.until_us = until_us


class _Counted(NamedTuple):
    """A count of the waiting jobs. over_us: time of the count that it replaces."""

    over_us: int
    waiting: int
    through: int
    counted_us: int
    again_us: int

    def applied_to(self, used: QuotaRecord) -> QuotaRecord:
        """Return a quota's record with this count."""
        return quotas.after_count(
            used,
            count=self.waiting,
            through=self.through,
            counted_us=self.counted_us,
            again_us=self.again_us,
        )


class _Taking(NamedTuple):
    """A quota's record after jobs are taken, how many more are taken ahead, and until when."""

    after: QuotaRecord
    more: int
    until_us: int


def _taking(used: QuotaRecord, quota: Quota, need: int, most: int, now_us: int) -> _Taking | None:
    """Take jobs from a quota, and up to `most` ahead; None if there is no room."""
    room = quotas.left(used, quota, now_us)
    if room < need:
        return None
    until_us = quotas.grain_end_us(quota, now_us)
    more = min(most, room - need)
    after = quotas.after_taking(used, quota, need, now_us, more=more, until_us=until_us)
    return _Taking(after, more, until_us)


class Admission:
    """Takes jobs from the quotas of a queue; threads may share it.

    Args:
      lends: Jobs may be taken ahead of later calls.
    """

    def __init__(
        self,
        store: Store,
        *,
        time: StoreTime,
        clock: Clock,
        ids: Ids,
        catalog: Catalog,
        lends: bool,
    ) -> None:
        self._store = store
        self._time = time
        self._clock = clock
        self._ids = ids
        self._catalog = catalog
        self._lends = lends
        self._gates: dict[tuple[str, str], _Gate] = {}

    def admit(self, queue: str, tenant: str, count: int, *, wait_us: int = 0) -> None:
        """Let a call enqueue `count` jobs.

        Args:
            queue: The queue.
            tenant: The tenant.
            count: Number of jobs.
            wait_us: How long to wait for room.

        Raises:
            QuotaExceeded: There is no room; nothing was written.
            StoreUnavailable: Nothing was written.
        """
        now_us = self._time.latest_us()
        until_us = now_us + wait_us
        while True:
            try:
                self._take_all(queue, tenant, count, now_us)
            except QuotaExceeded as full:
                now_us = self._time.latest_us()
                rest_s = (until_us - now_us) / SECOND_US
                again_s = full.counts_after if full.counts_after is not None else full.retry_after
                if again_s is None or again_s > rest_s or rest_s <= 0:
                    raise
                pause_s = min(max(again_s, AGAIN_US_MIN / SECOND_US), rest_s)
            else:
                return
            self._clock.sleep(pause_s)
            now_us = self._time.latest_us()

    def _take_all(self, queue: str, tenant: str, count: int, now_us: int) -> None:
        """Take jobs from each quota, the tenant's first: a refused tenant uses none of the others.

        Raises: QuotaExceeded: one has no room; all are read before any is taken from.
        """
        quotas = quotas_on(self._catalog.settings(queue).quotas, tenant)
        try:
            for quota in quotas[1:]:
                self._expect_room(queue, quota, count, now_us)
            for quota in quotas:
                self._take(queue, quota, count)
        except Unknown as error:  # about a record; no job is stored yet
            raise StoreUnavailable(
                f"The store did not say what is left of the quota of {queue}.", hint="Try again."
            ) from error

    def _expect_room(self, queue: str, quota: Quota, count: int, now_us: int) -> None:
        gate = self._gate(queue, quota)
        if gate.left >= count and gate.until_us >= now_us:
            return
        used, _ = quotas.read(self._store, queue, quota)
        if quotas.is_to_be_counted(used, quota, count, now_us):
            return
        if quotas.left(used, quota, now_us) < count:
            raise _refused(queue, quota, used, count, now_us)

    def _take(self, queue: str, quota: Quota, count: int) -> None:
        gate = self._gate(queue, quota)
        with gate.lock:
            # Read here: other quotas were read since, and what is taken ahead ends with its grain.
            now_us = self._time.latest_us()
            until_us = quotas.grain_end_us(quota, now_us)
            gate.move_on(now_us, until_us, quotas.grain_us(quota))
            if gate.left < count:
                # As many ahead as were used just before: unused ones are lost to all processes.
                ahead = max(0, gate.before - gate.used - count) if self._lends else 0
                need = count - gate.left
                more, gate.until_us = self._reserve(queue, quota, need, count, ahead)
                gate.left = count + more
            gate.left -= count
            gate.used += count

    def _gate(self, queue: str, quota: Quota) -> _Gate:
        key = (queue, quotas.key_of(quota))
        if len(self._gates) >= GATES_MAX and key not in self._gates:
            self._gates.clear()
        return self._gates.setdefault(key, _Gate())

    def _reserve(
        self, queue: str, quota: Quota, need: int, count: int, ahead: int
    ) -> tuple[int, int]:
        """Take jobs from a quota, and some ahead; return how many ahead, and until when."""
        most = min(ahead, quotas.ahead_most(quota))
        counted: _Counted | None = None
        for _ in range(_ROUNDS_MAX):
            used, version = quotas.read(self._store, queue, quota)
            now_us = self._time.latest_us()
            if counted is not None and used.counted_us == counted.over_us:
                used = counted.applied_to(used)
            elif quotas.is_to_be_counted(used, quota, need, now_us):
                counted = self._count(queue, quota, used)
                continue
            taking = _taking(used, quota, need, most, now_us)
            if taking is None:
                if counted is not None:  # so that other processes need not count
                    self._write(queue, quota, used, now_us, version)
                raise _refused(queue, quota, used, count, now_us)
            if self._write(queue, quota, taking.after, now_us, version):
                return taking.more, taking.until_us
        raise Conflict(f"The quota of the queue {queue} keeps changing.", hint="Try again.")

    def _write(
        self, queue: str, quota: Quota, used: QuotaRecord, now_us: int, expect: bytes
    ) -> bool:
        return quotas.write(
            self._store, queue, quota, used, now_us=now_us, expect=expect, ids=self._ids
        )

    def _count(self, queue: str, quota: Quota, used: QuotaRecord) -> _Counted:
        """Count waiting jobs, up to the allowed number (rule N7)."""
        began_us = self._clock.monotonic_us()
        now_us = self._time.latest_us()
        through = quotas.surely_used(used, now_us)
        jobs = waiting_jobs(self._store, queue, self._catalog.settings(queue).shards_read, quota)
        waiting = sum(1 for _ in islice((job for job in jobs if _waits(job, now_us)), quota.depth))
        took_us = self._clock.monotonic_us() - began_us
        now_us = self._time.latest_us()
        again_us = now_us + max(AGAIN_US_MIN, COUNTING_IN * took_us)
        return _Counted(used.counted_us, waiting, through, now_us, again_us)


def waiting_jobs(store: Store, queue: str, shards: int, quota: Quota) -> Iterator[Job]:
    """Yield the jobs of a queue to which a quota applies."""
    seen: set[Lane] = set()
    for shard in range(shards):
        for page in lane_pages(store, queue, shard, until_bucket=EVER):
            for _, lane in page.pointers:
                is_meant = quota.scope == "queue" or tenant_of(lane) == quota.tenant
                if is_meant and lane not in seen:
                    seen.add(lane)
                    yield from jobs_in(store, lane)


def _waits(job: Job, now_us: int) -> bool:
    return not job.outcome and not (job.is_claimed() and job.at_us > now_us)


def _refused(queue: str, quota: Quota, used: QuotaRecord, count: int, now_us: int) -> QuotaExceeded:
    """Return the error for a quota without room, with when to try again."""
    whose = f"The queue {queue}"
    if quota.scope != "queue":
        whose = f"The tenant {quota.tenant or '(none)'} of the queue {queue}"
    again_us: int | None
    counts_us: int | None = None
    if quota.depth and quotas.depth_left(used, quota) < count:
        most, has = quota.depth, min(quotas.waiting(used), quota.depth)
        message = f"{whose} may have at most {most} waiting job(s) (it has {has})."
        again_us = now_us + quotas.room_in_us(used, quota, count, now_us)
        counts_us = used.again_us
    else:
        most, span = quota.rate, span_text(quota.per_us)
        message = f"{whose} has used up its rate of {quota.rate} job(s) in {span}."
        again_us = rate.next_us(used.meter, quotas.rate_of(quota), now_us)
    hint = "Try again later, or wait for room with using(wait=5)."
    if count > most:
        message += f" This call has {count}."
        hint, again_us, counts_us = f"Enqueue at most {most} at once.", None, None
    error = QuotaExceeded(message, hint=hint)
    if again_us is not None:
        error.retry_after = max(0, again_us - now_us) / SECOND_US
    if counts_us is not None:
        error.counts_after = max(0, counts_us - now_us) / SECOND_US
    return error
