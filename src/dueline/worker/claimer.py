"""Finds lanes with due jobs, and claims jobs. Hot path: the benchmark `default`."""

from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from itertools import chain, groupby, repeat
from typing import NamedTuple

from dueline.coordination.worker_registry import KnownTasks
from dueline.core.clock import SECOND_US
from dueline.core.engine import Engine
from dueline.core.errors import StoreCorrupt, StoreUnavailable
from dueline.core.job import Job
from dueline.core.lane import (
    TASK_MARK,
    Lane,
    Pointer,
    bucket_of,
    closing_bucket,
    limits_of,
    task_of,
    tenant_of,
)
from dueline.core.logging import log
from dueline.core.pagination import first_pages
from dueline.core.queue_catalog import SETTINGS_AGE_US_MAX
from dueline.core.store import LanePage, Lease, Want
from dueline.core.store_capabilities import (
    PREFETCH_LEAD_US,
    PREFETCH_US_MAX,
    Prefetched,
    SupportsPrefetch,
)
from dueline.core.tuples import made
from dueline.core.wakeup import FALLBACK_US
from dueline.jobs.lane_planner import plan, prospects, weighed
from dueline.jobs.lane_rotation import LaneRotation
from dueline.jobs.tenant_round_robin import interleaved
from dueline.jobs.tenant_weights import LOOKED_AT, TenantWeights
from dueline.limits.blocked_lanes import BlockedLanes
from dueline.limits.permits import SLOTS, Granted, PermitSource
from dueline.worker.lane_list import LaneListCache
from dueline.worker.shard_affinity import Place, ShardAffinity, affinity_of

READERS_MAX = 8
"""Maximum number of lane lists read at the same time on stores where a read is a round trip."""

MOMENT_US = 10 * SECOND_US
"""How long a burst waits for a limit."""

DAMAGED_US = 60 * SECOND_US
"""How long a limit or queue whose record cannot be read is skipped; longer than MOMENT_US, so that
a burst does not wait for it.
"""

HEADS_MAX = 100
"""Maximum number of lanes whose first jobs are read in a refresh, in queues with aging."""


_Kind = tuple[int, str, tuple[str, ...]]
_Lanes = tuple[list[Pointer], Mapping[Lane, int | None]]
_LaneLists = dict[tuple[str, int], LaneListCache]


class ClaimedJob(NamedTuple):
    """A claimed job. before: its row before the claim, if its last claim died; None otherwise."""

    job: Job
    before: Job | None


class Claimer:
    """One worker's view of the lane lists of the queues that it serves.

    Args:
      engine: The engine.
      serving: Names of the queues.
      worker: The worker's id.
      lease_us: How long claims last; None for the queues' own leases.
      permits: Where permits for jobs with limits are taken; None to claim no such jobs.
      affinity: Which shards are polled; None for all.
      known: The tasks that the worker knows; None for all.

    Attributes:
      is_quiet: Whether it finds no jobs, as if all queues were paused.
    """

    def __init__(
        self,
        engine: Engine,
        serving: Sequence[str],
        worker: str,
        *,
        lease_us: int | None = None,
        permits: PermitSource | None = None,
        affinity: ShardAffinity | None = None,
        known: KnownTasks | None = None,
    ) -> None:
        self.is_quiet = False
        self._known = known
        self._affinity = affinity
        self._permits = permits
        self._limited = BlockedLanes()
        self._lease_us = lease_us
        self._engine = engine
        self._serving = serving
        self._worker = worker
        self._look_ahead_us_min = FALLBACK_US + SECOND_US
        self._asked_us = 0
        self._prefetched_until_us = 0  # jobs due until then are prefetched
        self._can_prefetch = isinstance(engine.store, SupportsPrefetch)
        self._rota = LaneRotation()
        self._lane_lists: dict[tuple[str, int], LaneListCache] = {}
        self._aging: dict[str, int] = {}
        self._warned_us: dict[str, int] = {}
        self._turn = 0
        self._weights = TenantWeights()
        self._readers: ThreadPoolExecutor | None = None
        self._sweeper: ThreadPoolExecutor | None = None
        self._sweeps: deque[Future[None]] = deque()
        if engine.store.scope == "network":  # each read is a round trip, and polls are frequent
            self._look_ahead_us_min = SECOND_US
            self._readers = ThreadPoolExecutor(READERS_MAX, thread_name_prefix="dueline-lanes")
            self._sweeper = ThreadPoolExecutor(1, thread_name_prefix="dueline-sweep")
        self._look_ahead_us = self._look_ahead_us_min  # further than the next poll

    @classmethod
    def sharing(
        cls,
        engine: Engine,
        serving: Iterable[str],
        worker: str,
        permits: PermitSource,
        *,
        known: KnownTasks,
        is_alone: bool,
    ) -> "Claimer":
        """Create a claimer that shares its queues with other workers, unless it is alone."""
        affinity = None if is_alone else affinity_of(engine, worker, known)
        return cls(engine, list(serving), worker, permits=permits, affinity=affinity, known=known)

    def refresh(self, gap_us: int = 0) -> None:
        """Read the lane lists again, and sweep lanes that are past and empty.

        Args:
          gap_us: Maximum time until the next call, as far as it is known.

        Raises: StoreMoved: the store has moved (rule X1).
        """
        self._look_ahead_us = max(self._look_ahead_us_min, gap_us + SECOND_US)
        # Where polls are rare, the version that they return shows that older settings are current.
        age_us_max = max(SETTINGS_AGE_US_MAX, gap_us + SECOND_US)
        shards = self._places(age_us_max)
        self._read_lists(shards)
        if (
            age_us_max > SETTINGS_AGE_US_MAX
            and (now := self._places(SETTINGS_AGE_US_MAX)) != shards
        ):
            self._read_lists(now)
        self._read_heads()

    def _places(self, age_us_max: int) -> Sequence[Place]:
        return [
            (queue, shard, settings.width_us)
            for queue in self._serving
            for settings in [self._engine.catalog.expect_here(queue, age_us_max=age_us_max)]
            for shard in range(settings.shards_read)
        ]

    def _read_lists(self, shards: Sequence[Place]) -> None:
        if self._affinity is not None:
            shards = self._affinity.chosen(shards)
        at_once = self._readers.map if self._readers else map
        pointers: list[Pointer] = []
        heads: dict[Lane, int | None] = {}
        lane_lists, self._lane_lists = self._lane_lists, {}  # a list read halfway is dropped
        now_us = self._engine.time.earliest_us()
        self._finish_sweeps(only_done=True)
        first = self._first_pages(lane_lists, now_us, shards)
        for found, known in at_once(partial(self._read, lane_lists, now_us, first), shards):
            pointers += found
            heads |= known
        self._lane_lists = lane_lists
        self._rota.renew(pointers, heads)
        self._limited.forget()
        self._prefetched_until_us = 0
        self._aging = {
            queue: settings.aging_us
            for queue in self._serving
            if (settings := self._engine.catalog.settings(queue)).aging_us
        }
        each = [self._engine.catalog.settings(queue).weights for queue in self._serving]
        self._weights.weights = dict(sorted(chain.from_iterable(each)))

    def _read_heads(self) -> None:
        """Read the first jobs of lanes without a known head, in queues with aging.

        A lane that is never claimed from would not age otherwise. Each refresh reads some of them.
        """
        if not self._aging:
            return
        for lane in self._rota.unknown(HEADS_MAX):
            if lane.queue in self._aging:
                page = self._engine.store.scan(lane, after=None, until_us=None, limit=1)
                if page.jobs:  # otherwise a claim finds out: a job that is being moved is not shown
                    self._rota.next_at_us[lane] = page.jobs[0].at_us

    def _first_pages(
        self, lane_lists: _LaneLists, now_us: int, places: Sequence[Place]
    ) -> Mapping[tuple[str, int], LanePage]:
        """Read the first pages of all shards of each queue at once, if the store can."""
        pages: dict[tuple[str, int], LanePage] = {}
        for (queue, width_us), some in groupby(places, key=lambda place: (place[0], place[2])):
            after = {
                shard: _lane_list_of(lane_lists, queue, shard).after(now_us) for _, shard, _ in some
            }
            until_bucket = bucket_of(now_us + self._look_ahead_us, width_us)
            found = first_pages(self._engine.store, queue, after, until_bucket=until_bucket)
            pages |= {(queue, shard): page for shard, page in found.items()}
        return pages

    def _read(
        self,
        lane_lists: _LaneLists,
        now_us: int,
        first: Mapping[tuple[str, int], LanePage],
        place: Place,
    ) -> _Lanes:
        queue, shard, width_us = place
        until_bucket = bucket_of(now_us + self._look_ahead_us, width_us)
        lane_list = _lane_list_of(lane_lists, queue, shard)
        known = self._rota.next_at_us
        found, heads, version = lane_list.read(
            self._engine.store, known,
            until_bucket=until_bucket, now_us=now_us, first=first.get((queue, shard)),
        )  # fmt: skip
        if not self._engine.catalog.is_current(queue, version):
            self._engine.catalog.forget(queue)
        settings = self._engine.catalog.settings(queue)
        if settings.is_paused or self.is_quiet:
            return [], {}
        closing = closing_bucket(now_us, width_us)  # a sweep leaves later lanes as they are
        past = [pointer.lane for pointer in found if pointer.listing <= closing]
        empty = sum(known.get(lane, 0) is None or heads.get(lane, 0) is None for lane in past)
        if lane_list.is_sweep_due(empty, now_us):
            lane_list.is_being_swept = True
            if self._sweeper is None:
                self._sweep(lane_list, now_us, place)
            else:  # a claim does not wait for its round trips
                self._sweeps.append(
                    self._sweeper.submit(self._sweep_later, lane_list, now_us, place)
                )
        if settings.paused_tenants:
            paused = frozenset(settings.paused_tenants)
            found = [pointer for pointer in found if tenant_of(pointer.lane) not in paused]
            heads = {lane: at_us for lane, at_us in heads.items() if tenant_of(lane) not in paused}
        if self._permits is None:
            found = [pointer for pointer in found if not limits_of(pointer.lane)]
        unknown = {lane for _, lane in found if TASK_MARK in lane.tenant and self._is_unknown(lane)}
        if unknown:
            found = [pointer for pointer in found if pointer.lane not in unknown]
            heads = {lane: at_us for lane, at_us in heads.items() if lane not in unknown}
        return found, heads

    def _is_unknown(self, lane: Lane) -> bool:
        """Return whether the jobs of a lane have a task that the worker does not know."""
        task = task_of(lane)
        return bool(task) and self._known is not None and task not in self._known

    def _sweep(self, lane_list: LaneListCache, now_us: int, place: Place) -> None:
        queue, shard, width_us = place
        began_us = self._engine.time.earliest_us()
        try:
            self._engine.store.sweep(queue, shard, now_us=now_us, width_us=width_us)
            lane_list.swept(began_us, self._engine.time.earliest_us())
        finally:
            lane_list.is_being_swept = False

    def _sweep_later(self, lane_list: LaneListCache, now_us: int, place: Place) -> None:
        with suppress(StoreUnavailable):  # any later sweep does the same
            self._sweep(lane_list, now_us, place)

    def _finish_sweeps(self, *, only_done: bool) -> None:
        """Raise what made a sweep fail."""
        while self._sweeps and not (only_done and not self._sweeps[0].done()):
            self._sweeps.popleft().result()

    def close(self) -> None:
        """Wait for what other threads do."""
        self._finish_sweeps(only_done=False)
        for pool in (self._readers, self._sweeper):
            if pool is not None:
                pool.shutdown()

    def set_quiet(self, *, is_quiet: bool) -> None:
        """Find no more jobs, or find them again from the next `refresh` on."""
        self.is_quiet = is_quiet
        if is_quiet:
            self._rota.renew([], {})

    def learn(self, lane: Lane, at_us: int) -> None:
        """Note a lane with a job that is due at `at_us`, to claim it as if it had been listed."""
        settings = self._engine.catalog.settings(lane.queue)
        is_left_out = (
            self.is_quiet
            or settings.is_paused
            or tenant_of(lane) in settings.paused_tenants
            or (self._permits is None and limits_of(lane))
            or self._is_unknown(lane)
            or (self._affinity is not None and self._affinity.is_left(lane.queue, lane.shard))
        )
        if not is_left_out:
            self._rota.learn(Pointer(lane.bucket, lane), at_us)
            self._prefetched_until_us = 0

    def claim(self, limit: int, room: Mapping[str, int]) -> list[ClaimedJob]:
        """Claim due jobs, the most urgent first.

        Args:
            limit: Maximum number of jobs.
            room: Free slots of queues with their own slots.

        Returns:
            The jobs; none if nothing is due in the lanes known since the last `refresh`.
        """
        time = self._engine.time
        now_us = self._asked_us = time.earliest_us()
        if not self._rota.unlimited and self._lacks_slots(now_us):
            return []  # without a look at each of what may be ten thousand lanes
        weighs = bool(self._weights.weights)
        kinds = max(limit, LOOKED_AT) if weighs else limit  # each of them has at least one job
        # If a lane holds no due job after all, the next of its kind is tried.
        for _ in range(self._rota.lanes):
            pointers = self._rota.first(kinds, now_us, room, of_each=bool(self._aging))
            if not (pointers or weighs):
                return []
            self._turn += 1
            free = self._without_refused(pointers, now_us)
            found = prospects(
                free, self._rota.next_at_us, now_us, self._aging, self._limited.since_us
            )
            if self._affinity is not None:
                found = self._affinity.preferred(found)
            if weighs:
                wants = weighed(found, self._weights, limit)
            else:
                others = self._affinity.others if self._affinity else ()
                wants = plan(found, limit=limit, room=room, turn=self._turn, others=others)
            taken = self._visit(wants, limit, room, now_us, time.latest_us())
            lanes = [job.lane for job, _ in taken]
            if len(wants) > 1 and not self._aging:  # jobs that age start by how long they waited
                in_turn = self._weights.interleaved if weighs else interleaved
                taken = in_turn(taken, lanes)
            if weighs:
                self._weights.given((lane.priority, tenant_of(lane)) for lane in lanes)
            if taken or not (wants or len(free) < len(pointers)):
                return taken
            kinds *= 2
        return []

    def returned(self, jobs: Sequence[Job]) -> Sequence[Job]:
        """Return the turns of jobs that are released before they started; return the jobs."""
        if jobs:
            self._weights.returned((job.lane.priority, tenant_of(job.lane)) for job in jobs)
        return jobs

    def _without_refused(self, pointers: Sequence[Pointer], now_us: int) -> Sequence[Pointer]:
        """Postpone all lanes whose limits were just refused, and return the others.

        A claim postpones one lane of each kind only, so each bucket would take a round of its own.
        Where no slot is left for jobs with limits, all of their lanes are postponed at once: there
        may be one for each of ten thousand keys.
        """
        if not self._limited.has_refusals():
            return pointers
        lacks_slots = self._lacks_slots(now_us)
        free: list[Pointer] = []
        without_slot: list[Lane] = []
        for pointer in pointers:
            limits = limits_of(pointer.lane)
            if limits and lacks_slots:
                without_slot.append(pointer.lane)
            elif limits and (lacking := self._limited.among(limits, now_us)):
                self._postpone([pointer.lane], lacking)
            else:
                free.append(pointer)
        if without_slot:
            self._postpone(without_slot, (SLOTS,))
        return free

    def _lacks_slots(self, now_us: int) -> bool:
        """Return whether no slot was left for jobs with limits a moment ago."""
        return bool(self._limited.among((SLOTS,), now_us))

    def _postpone(self, lanes: Collection[Lane], lacking: Collection[str]) -> None:
        """Skip lanes until the limits that refused them may be asked again."""
        until_us = self._limited.block(lanes, lacking, self._rota.next_at_us)
        self._rota.visited(dict.fromkeys(lanes, until_us))

    def _visit(
        self,
        wants: Sequence[Want],
        limit: int,
        room: Mapping[str, int],
        now_us: int,
        latest_us: int,
    ) -> list[ClaimedJob]:
        left = dict(room)
        taken: list[ClaimedJob] = []
        for (lease_us, queue, limits), some in self._runs(wants, room):
            most = min(limit - len(taken), left.get(queue, limit))
            if limits and self._lacks_slots(now_us):
                continue  # the next claim postpones all such lanes at once
            try:
                until_us = None
                if limits and most > 0:
                    most, until_us = self._permitted(limits, most, some, lease_us)
                if most <= 0:
                    continue
                lasting_us = lease_us + latest_us - now_us
                if until_us is not None:
                    lasting_us = min(lasting_us, until_us - now_us)
                lease = Lease(now_us, lasting_us, self._worker, self._engine.ids.token())
                claimed = self._engine.store.claim(some, limit=most, lease=lease)
            except StoreUnavailable:
                if not taken:
                    raise
                break  # jobs that are claimed already must be returned
            if limits:
                self._unused(limits, most - len(claimed.jobs))
                if self._permits is not None:
                    self._permits.used(limits, [job.claim() for job in claimed.jobs])
            self._rota.visited(claimed.next_at_us)
            self._limited.visited(claimed.next_at_us)
            if claimed.died:
                taken += [ClaimedJob(job, claimed.died.get(job.id)) for job in claimed.jobs]
            else:
                taken += made(ClaimedJob, zip(claimed.jobs, repeat(None)))
            if queue in left:
                left[queue] -= len(claimed.jobs)
        return taken

    def _permitted(
        self, limits: Sequence[str], most: int, wants: Sequence[Want], lease_us: int
    ) -> tuple[int, int]:
        """Take permits for lanes with limits, or postpone the lanes.

        Returns:
            The number of jobs that may be claimed, and until when their claims may last.
        """
        assert self._permits is not None, "lanes with limits are left out without permits"
        lane, now_us = wants[0].lane, self._asked_us
        lacking: Collection[str] = self._limited.among(limits, now_us)
        if not lacking:
            try:
                granted = self._permits.take(
                    limits, most, priority=lane.priority, queue=lane.queue, lease_us=lease_us
                )
            except StoreCorrupt as error:  # lanes with other limits continue
                self._warn(f"limits {', '.join(limits)}", error, now_us)
                granted = Granted(0, 0, dict.fromkeys(limits, now_us + DAMAGED_US))
            if granted.jobs:
                return granted.jobs, granted.until_us
            self._limited.refused(granted.lacking)
            lacking = granted.lacking.keys()
        self._postpone([want.lane for want in wants], lacking)
        return 0, 0

    def _warn(self, what: str, error: StoreCorrupt, now_us: int) -> None:
        """Log what cannot be read, at most once in DAMAGED_US."""
        if now_us - self._warned_us.get(what, -DAMAGED_US) >= DAMAGED_US:
            self._warned_us[what] = now_us
            log.error("%s cannot be read; jobs that need it wait: %s", what, error)

    def _unused(self, limits: Sequence[str], count: int) -> None:
        if self._permits is not None and count:
            self._permits.unused(limits, count)

    def unblock(self, limits: Collection[str]) -> None:
        """Claim again from lanes that were postponed because of these limits."""
        lanes = self._limited.take(limits)
        if lanes:
            self._rota.visited(dict.fromkeys(lanes, self._engine.time.earliest_us()))

    def prefetch(self, limit: int, room: Mapping[str, int]) -> list[Prefetched]:
        """Claim jobs that will soon be due, if the store supports it.

        Args:
            limit: Maximum number of jobs.
            room: Free slots of queues with their own slots.

        Returns:
            The jobs; none while no job is known to be due so soon.
        """
        store, time = self._engine.store, self._engine.time
        soon_us = self._soon_us()
        if soon_us is None or soon_us > (now_us := time.earliest_us()):
            return []
        if not isinstance(store, SupportsPrefetch):  # last: it takes long
            return []
        latest_us = time.latest_us()
        until_us = now_us + PREFETCH_US_MAX
        pointers = self._rota.first(limit, until_us, room, of_each=bool(self._aging))
        pointers = [pointer for pointer in pointers if not limits_of(pointer.lane)]
        found = prospects(pointers, self._rota.next_at_us, until_us, self._aging)
        wants = plan(found, limit=limit, room=room, turn=self._turn)
        left = dict(room)
        prefetched: list[Prefetched] = []
        for (lease_us, queue, _), some in self._runs(wants, room):
            most = min(limit - len(prefetched), left.get(queue, limit))
            if most <= 0:
                continue
            try:
                lasting_us = lease_us + latest_us - now_us
                lease = Lease(now_us, lasting_us, self._worker, self._engine.ids.token())
                claimed = store.prefetch(some, limit=most, until_us=until_us, lease=lease)
            except StoreUnavailable:
                if not prefetched:
                    raise
                break  # as above
            self._rota.visited(claimed.next_at_us)
            prefetched += claimed.jobs
            if queue in left:
                left[queue] -= len(claimed.jobs)
        if not prefetched:  # the jobs due so soon are held by others, or gone
            self._prefetched_until_us = until_us
        return prefetched

    def _runs(
        self, wants: Sequence[Want], room: Mapping[str, int]
    ) -> list[tuple[_Kind, list[Want]]]:
        """Group wants, in order, into claims that share a lease, slots and limits.

        Returns:
            The lease, the queue with its own slots or "", the limits, and the wants.
        """
        settings = self._engine.catalog.settings
        kinds = {
            queue: (self._lease_us or settings(queue).lease_us, queue if queue in room else "")
            for queue in {want.lane.queue for want in wants}
        }
        if not any(limits_of(want.lane) for want in wants):
            runs = groupby(wants, key=lambda want: kinds[want.lane.queue])
            return [((*kind, ()), list(some)) for kind, some in runs]

        def kind_of(want: Want) -> tuple[tuple[int, str], tuple[str, ...], tuple[str, int] | None]:
            lane = want.lane
            limits = limits_of(lane)
            return kinds[lane.queue], limits, (lane.queue, lane.priority) if limits else None

        limited = groupby(wants, key=kind_of)
        return [((*kind, names), list(some)) for (kind, names, _), some in limited]

    def has_due(self) -> bool:
        """Return whether some lane may hold due jobs, or jobs that a limit delays for a moment.

        A job that may be due counts, even if the clock's error does not allow a claim yet.
        """
        now_us = self._engine.time.latest_us()
        soon = self._limited.asked_before(now_us + MOMENT_US)
        waits = self._permits is not None and any(map(self._permits.is_open, soon))
        return waits or self._rota.has_due(now_us)

    def next_us(self, *, is_ahead: bool = False) -> int | None:
        """Return the earliest time at which a known lane has due jobs; None without one.

        Jobs that were due at the last claim and were not claimed wait for slots, not for a time.

        Args:
            is_ahead: Jobs may be claimed before their time, if the store supports it.
        """
        known = (at_us for at_us in self._rota.next_at_us.values() if at_us is not None)
        due_us = min((at_us for at_us in known if at_us > self._asked_us), default=None)
        soon_us = self._soon_us() if is_ahead else None
        return due_us if due_us is None or soon_us is None else min(due_us, soon_us)

    def _soon_us(self) -> int | None:
        """Return when to prefetch: shortly before the next job that is not prefetched yet."""
        if not self._can_prefetch:
            return None
        after_us = max(self._asked_us, self._prefetched_until_us)
        known = (at_us for at_us in self._rota.next_at_us.values() if at_us is not None)
        next_us = min((at_us for at_us in known if at_us > after_us), default=None)
        return None if next_us is None else next_us - PREFETCH_LEAD_US


def _lane_list_of(lane_lists: _LaneLists, queue: str, shard: int) -> LaneListCache:
    return lane_lists.setdefault((queue, shard), LaneListCache(queue, shard))
