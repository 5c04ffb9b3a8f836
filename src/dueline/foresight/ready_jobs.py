"""The ready jobs of a simulation, in lanes, claimed in the order of `jobs.lane_planner`."""

from collections.abc import Callable, Collection, Mapping, Sequence
from heapq import heappop, heappush
from itertools import islice

from dueline.core.lane import Lane, lane_tenant
from dueline.foresight.record import Kind
from dueline.jobs.lane_planner import Prospect, aged, plan, weighed
from dueline.jobs.tenant_round_robin import RoundRobin, interleaved
from dueline.jobs.tenant_weights import LOOKED_AT, TenantWeights

Grant = Callable[[Sequence[str], int, int, str], int]
"""Takes permits of limits for jobs of a priority and queue; returns for how many."""


class ReadyLane:
    """A lane with ready jobs: a heap of pairs, when each was ready and its attempt."""

    __slots__ = ("jobs", "lane", "limits", "prospect")

    def __init__(self, lane: Lane, tenant: str, limits: tuple[str, ...]) -> None:
        self.lane = lane
        self.limits = limits
        self.jobs: list[tuple[int, int]] = []
        self.prospect = Prospect(lane.priority, tenant, lane.bucket, lane)


class Claimant:
    """What a worker remembers between claims."""

    __slots__ = ("turn", "weights")

    def __init__(self, weights: Mapping[str, int]) -> None:
        self.turn = 0
        self.weights = TenantWeights()
        self.weights.weights = weights


class ReadyJobs:
    """Lanes with ready jobs; those of one priority take turns.

    count: number of ready jobs.
    """

    def __init__(
        self, kinds: Sequence[Kind], widths_us: Sequence[int], aging_us: Mapping[str, int]
    ) -> None:
        self.count = 0
        self._kinds = kinds
        self._widths_us = widths_us
        self._aging_us = aging_us
        self._lanes: dict[tuple[int, int], ReadyLane] = {}
        self._by_lane: dict[Lane, ReadyLane] = {}
        self._active: dict[tuple[int, str], list[ReadyLane]] = {}
        self._turns: dict[int, RoundRobin] = {}
        self._priorities: list[int] = []

    def add(self, kind: int, ready_us: int, attempt: int) -> None:
        """Add a ready job."""
        key = (kind, ready_us // self._widths_us[kind])
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = self._lane_of(*key)
        if not lane.jobs:
            self._activate(lane)
        heappush(lane.jobs, (ready_us, attempt))
        self.count += 1

    def _lane_of(self, number: int, bucket: int) -> ReadyLane:
        kind = self._kinds[number]
        name = lane_tenant(kind.tenant, kind.limits)
        lane = Lane(kind.queue, kind.shard, bucket, kind.priority, name)
        return self._by_lane.setdefault(lane, ReadyLane(lane, kind.tenant, kind.limits))

    def _activate(self, lane: ReadyLane) -> None:
        priority, name = lane.lane.priority, lane.lane.tenant
        active = self._active.setdefault((priority, name), [])
        active.append(lane)
        if len(active) == 1:
            turns = self._turns.get(priority)
            if turns is None:
                turns = self._turns[priority] = RoundRobin()
                self._priorities = sorted(self._turns, reverse=True)
            turns.add((name,))

    def _deactivate(self, lane: ReadyLane) -> None:
        priority, name = lane.lane.priority, lane.lane.tenant
        active = self._active[priority, name]
        active.remove(lane)
        if not active:
            del self._active[priority, name]
            turns = self._turns[priority]
            turns.remove(name)
            if not turns:
                del self._turns[priority]
                self._priorities.remove(priority)

    def claim(
        self, who: Claimant, limit: int, now_us: int, blocked: Collection[str], grant: Grant
    ) -> list[int]:
        """Claim ready jobs as a worker does, the most urgent first; return their attempts.

        Args:
            who: The worker.
            limit: Maximum number of jobs.
            now_us: The time.
            blocked: Limits that refused the worker a moment ago.
            grant: Takes permits.
        """
        if len(self._active) == 1 and not self._aging_us:  # as most of the time
            (lanes,) = self._active.values()
            if len(lanes) == 1 and not lanes[0].limits:
                return self._taken(lanes[0], limit)
        if limit == 1 and not (who.weights.weights or self._aging_us):
            return self._first(now_us, blocked, grant)
        if who.weights.weights:
            prospects = self._prospects(max(limit, LOOKED_AT), now_us, blocked)
            wants = weighed(prospects, who.weights, limit) if prospects else ()
        else:
            prospects = self._prospects(limit, now_us, blocked)
            who.turn += 1
            wants = plan(prospects, limit=limit, room={}, turn=who.turn) if prospects else ()
        taken: list[int] = []
        lanes_of: list[Lane] = []
        for lane, most in wants:
            ready = self._by_lane[lane]
            count = min(most, limit - len(taken), len(ready.jobs))
            if ready.limits and count:
                count = grant(ready.limits, count, lane.priority, lane.queue)
            if count:
                taken += self._taken(ready, count)
                lanes_of += [lane] * count
        if len(wants) > 1 and not self._aging_us:
            in_turn = who.weights.interleaved if who.weights.weights else interleaved
            taken = in_turn(taken, lanes_of)
        if who.weights.weights:
            who.weights.given(
                (lane.priority, self._by_lane[lane].prospect.tenant) for lane in lanes_of
            )
        return taken

    def _first(self, now_us: int, blocked: Collection[str], grant: Grant) -> list[int]:
        """Claim one job: `plan` would make a want of the same lane."""
        for prospect in self._prospects(1, now_us, blocked):
            ready = self._by_lane[prospect.lane]
            if not ready.limits or grant(
                ready.limits, 1, prospect.lane.priority, prospect.lane.queue
            ):
                return self._taken(ready, 1)
        return []

    def _prospects(self, count: int, now_us: int, blocked: Collection[str]) -> list[Prospect]:
        """Return the lanes of the first kinds in turn, as `LaneRotation.first` does."""
        prospects: list[Prospect] = []
        most = count
        for priority in self._priorities:
            if self._aging_us:
                count = most
            turns = self._turns[priority]
            for name in islice(turns, count) if not blocked else turns:
                lanes = self._active[priority, name]
                if blocked and not blocked.isdisjoint(lanes[0].limits):  # type: ignore[attr-defined]
                    continue
                prospects += self._oldest(lanes, now_us)
                count -= 1
                if not count:
                    break
            if not count and not self._aging_us:
                break
        return prospects

    def _oldest(self, lanes: Sequence[ReadyLane], now_us: int) -> list[Prospect]:
        """Return the oldest lane of each queue and shard."""
        if len(lanes) > 1:
            first: dict[tuple[str, int], ReadyLane] = {}
            for lane in lanes:
                best = first.setdefault(lane.lane[:2], lane)
                if lane.lane.bucket < best.lane.bucket:
                    first[lane.lane[:2]] = lane
            lanes = list(first.values())
        if not self._aging_us:
            lanes = sorted(lanes, key=lambda ready: ready.prospect[2:]) if len(lanes) > 1 else lanes
            return [ready.prospect for ready in lanes]
        return [
            ready.prospect._replace(
                priority=aged(
                    ready.lane.priority,
                    now_us - ready.jobs[0][0],
                    self._aging_us.get(ready.lane.queue, 0),
                )
            )
            for ready in lanes
        ]

    def _taken(self, lane: ReadyLane, count: int) -> list[int]:
        jobs = lane.jobs
        if count >= len(jobs):
            taken = [attempt for _, attempt in sorted(jobs)]
            jobs.clear()
            self._deactivate(lane)
        else:
            taken = [heappop(jobs)[1] for _ in range(count)]
            turns = self._turns[lane.lane.priority]
            turns.had(lane.lane.tenant)
        self.count -= len(taken)
        return taken
