"""Claims jobs for a worker. Hot path: the benchmark `default`."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from itertools import chain, repeat
from typing import NamedTuple

from dueline.coordination.worker_registry import KnownTasks
from dueline.core.clock import SECOND_US
from dueline.core.engine import Engine
from dueline.core.job import Job
from dueline.core.lane import Lane, Pointer, has_costs, limits_of, tenant_of
from dueline.core.queue_catalog import SETTINGS_AGE_US_MAX
from dueline.core.store import Claimed, Lease, Want
from dueline.core.store_capabilities import Prefetched
from dueline.core.tuples import made
from dueline.jobs.history import record_deaths
from dueline.jobs.lane_planner import plan, prospects, weighed
from dueline.jobs.lane_rotation import LaneRotation
from dueline.jobs.paused_tasks import requeue_claimed
from dueline.jobs.tenant_round_robin import interleaved
from dueline.jobs.tenant_weights import LOOKED_AT, TenantWeights
from dueline.limits.needs import ANY, Needs, needs_of, units_of
from dueline.limits.permits import PermitSource
from dueline.worker.lane_visits import LaneVisits, Visit
from dueline.worker.limited_lanes import LimitedLanes
from dueline.worker.prefetch_claims import PrefetchClaims
from dueline.worker.resources import CHECK_US, Resources
from dueline.worker.served_lanes import ServedLanes
from dueline.worker.shard_affinity import Place, ShardAffinity, affinity_of

HEADS_MAX = 100
"""Maximum number of lanes whose first jobs are read in a refresh, in queues with aging."""


class ClaimedJob(NamedTuple):
    """A claimed job. before: its row before the claim, if its last claim died; None otherwise."""

    job: Job
    before: Job | None


class Claimer:
    """The claims of one worker: which lanes it asks next, and for how many jobs.

    Args:
      engine: The engine.
      serving: Names of the queues.
      worker: The worker's id.
      lease_us: How long claims last; None for the queues' own leases.
      permits: Where permits for jobs with limits are taken; None to claim no such jobs.
      affinity: Which shards are polled; None for all.
      known: The tasks that the worker knows; None for all.
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
        self._engine = engine
        self._worker = worker
        self._affinity = affinity
        self._lanes = ServedLanes(
            engine, serving, affinity=affinity, known=known, has_permits=permits is not None
        )
        self._rota = LaneRotation()
        self._limits = LimitedLanes(permits, self._rota)
        self._resources = Resources(known.has, engine.store) if known and known.has else None
        self._visits = LaneVisits(engine, lease_us)
        self._early = PrefetchClaims(engine, worker, self._rota, self._visits)
        self._aging: dict[str, int] = {}
        self.polls_us: Collection[int] = ()
        self._weights = TenantWeights()
        self._asked_us = 0
        self._turn = 0

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

    @property
    def is_quiet(self) -> bool:
        """Whether it finds no jobs, as if all queues were paused."""
        return self._lanes.is_quiet

    def set_quiet(self, *, is_quiet: bool) -> None:
        """Find no more jobs, or find them again from the next `refresh` on."""
        self._lanes.is_quiet = is_quiet
        if is_quiet:
            self._rota.renew([], {})

    def refresh(self, gap_us: int = 0) -> None:
        """Read the lane lists again, and sweep lanes that are past and empty.

        Args:
          gap_us: Maximum time until the next call, as far as it is known.

        Raises: StoreMoved: the store has moved (rule X1).
        """
        self._lanes.gap_us = gap_us
        # Where polls are rare, the version that they return shows that older settings are current.
        age_us_max = max(SETTINGS_AGE_US_MAX, gap_us + SECOND_US)
        places = self._lanes.places(age_us_max)
        self._read_lists(places)
        if (
            age_us_max > SETTINGS_AGE_US_MAX
            and (now := self._lanes.places(SETTINGS_AGE_US_MAX)) != places
        ):
            self._read_lists(now)
        if self._aging:
            self._read_heads()

    def _read_lists(self, places: Sequence[Place]) -> None:
        self._rota.renew(*self._lanes.read(places, self._rota.next_at_us))
        self._limits.listed()
        if self._resources is not None:
            self._resources.forget()
        self._early.until_us = 0
        served = self._lanes.settings
        self._aging = {queue: settings.aging_us for queue, settings in served if settings.aging_us}
        self.polls_us = {settings.poll_us for _, settings in served}
        weights = [settings.weights for _, settings in served]
        self._weights.weights = dict(sorted(chain.from_iterable(weights)))

    def _read_heads(self) -> None:
        """Read the first jobs of lanes without a known head, in queues with aging.

        A lane that is never claimed from would not age otherwise. Each refresh reads some of them.
        """
        for lane in self._rota.unknown(HEADS_MAX):
            if lane.queue in self._aging:
                page = self._engine.store.scan(lane, after=None, until_us=None, limit=1)
                if page.jobs:  # otherwise a claim finds out: a job that is being moved is not shown
                    self._rota.next_at_us[lane] = page.jobs[0].at_us

    def close(self) -> None:
        """Wait for what other threads do."""
        self._lanes.close()

    def learn(self, lane: Lane, at_us: int) -> None:
        """Note a lane with a job that is due at `at_us`, to claim it as if it had been listed."""
        if not self._lanes.is_left_out(lane):
            self._rota.learn(Pointer(lane.bucket, lane), at_us)
            self._early.until_us = 0

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
        if not self._rota.unlimited and self._limits.lacks_slots(now_us):
            return []  # without a look at each of what may be ten thousand lanes
        weighs = bool(self._weights.weights)
        kinds = max(limit, LOOKED_AT) if weighs else limit  # each of them has at least one job
        # If a lane holds no due job after all, the next of its kind is tried.
        for _ in range(self._rota.lanes):
            pointers = self._rota.first(kinds, now_us, room, of_each=bool(self._aging))
            if not (pointers or weighs):
                return []
            self._turn += 1
            free = self._limits.without_refused(pointers, now_us)
            if self._resources is not None:
                free = self._fitting(free, now_us)
            since_us = self._limits.blocked.since_us
            candidates = prospects(free, self._rota.next_at_us, now_us, self._aging, since_us)
            if self._affinity is not None:
                candidates = self._affinity.preferred(candidates)
            if weighs:
                wants = weighed(candidates, self._weights, limit)
            else:
                others = self._affinity.others if self._affinity else ()
                wants = plan(candidates, limit=limit, room=room, turn=self._turn, others=others)
            visit = partial(self._visit, now_us, time.latest_us() - now_us)
            taken = self._visits.each(wants, limit, room, visit)
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

    def _visit(self, now_us: int, error_us: int, visit: Visit, most: int) -> Sequence[ClaimedJob]:
        """Claim from some lanes; error_us: what the store's time may differ by."""
        lasting_us, needs = visit.lease_us + error_us, ANY
        first: Sequence[Job] = ()
        if visit.needs and self._resources is not None:
            most = min(most, self._resources.room(visit.wants[0].lane))
            if most <= 0:
                return ()  # an earlier visit has used them; the next claim postpones the lanes
        if visit.limits:
            if self._limits.lacks_slots(now_us):
                return ()  # the next claim postpones all such lanes at once
            if has_costs(visit.wants[0].lane):
                first = self._first_jobs(visit.wants[0], most, now_us)
                needs, most = needs_of(visit.wants[0].lane, first), len(first)
            if not most:  # the claim below finds out when the lane has a due job
                self._limits.give_up_places(visit.wants[0].lane)
            else:
                most, until_us = self._limits.take(visit, most, now_us, needs)
                if most <= 0:
                    return ()
                lasting_us = min(lasting_us, until_us - now_us)
        lease = Lease(now_us, lasting_us, self._worker, self._engine.ids.token())
        claimed = self._engine.store.claim(visit.wants, limit=max(1, most), lease=lease)
        if needs.line:
            claimed = self._permitted(claimed, first[:most], needs)
        if visit.limits and most:
            self._limits.used(visit.limits, most, claimed.jobs, needs)
        if visit.needs and self._resources is not None:
            self._resources.take(claimed.jobs)
        self._rota.visited(claimed.next_at_us)
        self._limits.blocked.visited(claimed.next_at_us)
        if claimed.died:
            return [ClaimedJob(job, claimed.died.get(job.id)) for job in claimed.jobs]
        return made(ClaimedJob, zip(claimed.jobs, repeat(None)))

    def _fitting(self, pointers: Sequence[Pointer], now_us: int) -> Sequence[Pointer]:
        """Postpone lanes that need more than is free now, and return the others."""
        assert self._resources is not None
        fit = self._resources.fitting(pointers)
        if len(fit) < len(pointers):
            lanes = {pointer.lane for pointer in pointers} - {pointer.lane for pointer in fit}
            self._rota.visited(dict.fromkeys(lanes, now_us + CHECK_US))
        return fit

    def _first_jobs(self, want: Want, most: int, now_us: int) -> Sequence[Job]:
        """Read the due jobs at the front of a lane, which a claim will bring."""
        limit = min(most, want.most)
        return self._engine.store.scan(want.lane, after=None, until_us=now_us, limit=limit).jobs

    def _permitted(self, claimed: Claimed, first: Sequence[Job], needs: Needs) -> Claimed:
        """Return a claim with the jobs for which there are permits; others are requeued (rule N9).

        Another worker may have claimed the jobs that were read, so that this claim brought others.

        Args: first: the jobs for which permits were taken.
        """
        if [job.id for job in claimed.jobs] == [job.id for job in first[: len(claimed.jobs)]]:
            return claimed
        left = {name: needs.units(name, len(first)) for name in needs.totals}
        kept: list[Job] = []
        for job in claimed.jobs:
            costs = units_of((job,), limits_of(job.lane))
            if len(kept) < len(first) and all(
                units <= left.get(name, units if units == 1 else 0) for name, units in costs.items()
            ):
                kept.append(job)
                for name in left:
                    left[name] -= costs[name]
            else:
                break
        gone = claimed.jobs[len(kept) :]
        deaths = (claimed.died.get(job.id) for job in gone)
        record_deaths(self._engine, filter(None, deaths))
        requeue_claimed(self._engine, gone)
        now_us = self._engine.time.earliest_us()
        return claimed._replace(
            jobs=kept, next_at_us={**claimed.next_at_us, **{job.lane: now_us for job in gone}}
        )

    def returned(self, jobs: Sequence[Job]) -> Sequence[Job]:
        """Return the turns of jobs that are released before they started; return the jobs."""
        if jobs:
            self._weights.returned((job.lane.priority, tenant_of(job.lane)) for job in jobs)
        return jobs

    def unblock(
        self, limits: Collection[str], in_use: Callable[[], Collection[Job]] = tuple
    ) -> None:
        """Claim again from lanes that were postponed because of these limits, or of resources.

        Args:
            limits: The limits.
            in_use: Returns the jobs that the worker holds or runs.
        """
        lanes = self._limits.blocked.take(limits)
        if self._resources is not None:
            now_us = self._engine.time.earliest_us()
            lanes.update(self._resources.begin(in_use(), now_us, self._lanes.is_left_out))
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
        return self._early.claim(
            limit, room, asked_us=self._asked_us, aging=self._aging, turn=self._turn
        )

    def has_due(self) -> bool:
        """Return whether some lane may hold due jobs, or jobs that a limit delays for a moment.

        A job that may be due counts, even if the clock's error does not allow a claim yet.
        """
        now_us = self._engine.time.latest_us()
        if self._resources is not None and self._resources.is_awaited:
            return True
        return self._limits.is_awaited(now_us) or self._rota.has_due(now_us)

    def next_us(self, *, is_ahead: bool = False) -> int | None:
        """Return the earliest time at which a known lane has due jobs; None without one.

        Jobs that were due at the last claim and were not claimed wait for slots, not for a time.

        Args:
            is_ahead: Jobs may be claimed before their time, if the store supports it.
        """
        due_us = self._rota.next_after(self._asked_us)
        soon_us = self._early.soon_us(self._asked_us) if is_ahead else None
        return due_us if due_us is None or soon_us is None else min(due_us, soon_us)
