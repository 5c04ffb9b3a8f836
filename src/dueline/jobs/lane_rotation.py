"""The lanes that a claim considers."""

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby, islice
from operator import itemgetter

from dueline.core.lane import TASK_MARK, Lane, Pointer, limits_of
from dueline.jobs.tenant_round_robin import RoundRobin

_priority_of = itemgetter(0)  # of a Kind
Kind = tuple[int, str]
"""A priority, and a tenant with the limits of its jobs: those of one priority take turns."""


class LaneRotation:
    """The lanes of a lane list, in rotation: a claim considers no more of them than it may take.

    Otherwise 100,000 tenants with a job each would be sorted at every claim.

    Attributes:
      lanes: How many there are.
      unlimited: How many of them hold jobs without limits.
      next_at_us: What claims found out since the list was read; other lanes are unknown.
    """

    def __init__(self) -> None:
        self.lanes = 0
        self.unlimited = 0
        self.next_at_us: dict[Lane, int | None] = {}
        self._lanes: dict[Kind, list[Pointer]] = {}
        self._turns: dict[int, RoundRobin] = {}
        self._suspended: list[tuple[int, Kind]] = []  # a heap: when a kind may have a turn again

    def renew(self, pointers: Iterable[Pointer], heads: Mapping[Lane, int | None]) -> None:
        """Take the lane list as it was just read, and drop what claims found out.

        Turns continue: the tenant whose turn was longest ago is next, a new one is last.

        Args:
            pointers: The lane list.
            heads: The least `at_us` of lanes, as far as the list has it; None for empty ones.
        """
        self.next_at_us = dict(heads)
        self._suspended = []
        self._lanes = {}
        self.lanes = self.unlimited = 0
        for pointer in pointers:
            lane = pointer.lane
            if heads.get(lane, 0) is not None:  # otherwise it is empty
                self._lanes.setdefault((lane.priority, lane.tenant), []).append(pointer)
                self.lanes += 1
                self.unlimited += not limits_of(lane)
        before, self._turns = self._turns, {}
        for priority, turns in before.items():
            known = [tenant for tenant in turns if (priority, tenant) in self._lanes]
            if known:
                self._turns[priority] = RoundRobin(known)
        for priority, same in groupby(self._lanes, key=_priority_of):
            tenants: Iterable[str] = (tenant for _, tenant in same)
            if priority not in self._turns:  # functions that have begun have the first turn
                tenants = sorted(tenants, key=lambda tenant: TASK_MARK not in tenant)
            self._turns.setdefault(priority, RoundRobin()).add(tenants)

    def learn(self, pointer: Pointer, at_us: int) -> None:
        """Add a lane with a job that was just stored, which is due at `at_us`.

        The list will have it (rule R7). A lane that is known, but not its head, may have
        earlier jobs, and stays unknown.
        """
        lane = pointer.lane
        mine = self._lanes.setdefault((lane.priority, lane.tenant), [])
        is_new = all(pointer.lane != lane for pointer in mine)
        if is_new:
            mine.append(pointer)
            self.lanes += 1
            self.unlimited += not limits_of(lane)
        if is_new or lane in self.next_at_us:
            known_us = self.next_at_us.get(lane)
            self.next_at_us[lane] = at_us if known_us is None else min(at_us, known_us)
        self._turns.setdefault(lane.priority, RoundRobin()).add([lane.tenant])

    def visited(self, next_at_us: Mapping[Lane, int | None]) -> None:
        """Take what claims found out about lanes; their tenants have had their turn."""
        self.next_at_us.update(next_at_us)
        for lane, at_us in next_at_us.items():
            _, _, _, priority, tenant = lane
            kind = (priority, tenant)
            turns = self._turns.get(priority)
            if turns is not None and tenant in turns:
                if at_us is None and len(self._lanes[kind]) == 1:
                    turns.remove(tenant)  # the tenant's only lane is empty
                else:
                    turns.had(tenant)
            elif at_us is not None and kind in self._lanes:
                heapq.heappush(self._suspended, (at_us, kind))

    def first(
        self, count: int, now_us: int, room: Mapping[str, int], *, of_each: bool = False
    ) -> list[Pointer]:
        """Return lanes that may hold due jobs, of the first kinds in turn.

        Args:
            count: Number of kinds, larger priorities first.
            now_us: The store's time.
            room: Free slots of queues with their own slots: full ones are left out.
            of_each: This many kinds of each priority, since with aging any may be the first.
        """
        self._wake(now_us)
        most = count
        pointers: list[Pointer] = []
        for priority in sorted(self._turns, reverse=True):
            idle: list[str] = []
            if of_each:
                count = most
            for tenant in self._turns[priority]:
                if count == 0:
                    break
                due = self._due(priority, tenant, now_us)
                if not due:
                    idle.append(tenant)
                    continue
                if room:
                    due = [pointer for pointer in due if room.get(pointer.lane.queue, 1) > 0]
                if due:
                    pointers += due
                    count -= 1
            self._suspend(priority, idle)
        return pointers

    def each(self) -> Iterator[Lane]:
        """Yield all lanes."""
        return (pointer.lane for mine in self._lanes.values() for pointer in mine)

    def unknown(self, most: int) -> list[Lane]:
        """Return lanes without a known head, those of the first in turn first."""
        kinds = (
            self._lanes[priority, tenant]
            for priority, turns in self._turns.items()
            for tenant in turns
        )
        unknown = (p.lane for mine in kinds for p in mine if p.lane not in self.next_at_us)
        return list(islice(unknown, most))

    def next_after(self, instant_us: int) -> int | None:
        """Return the first time after a timestamp at which a known lane has a due job."""
        known = self.next_at_us.values()
        later = (at_us for at_us in known if at_us is not None and at_us > instant_us)
        return min(later, default=None)

    def has_due(self, now_us: int) -> bool:
        """Return whether some lane may hold due jobs."""
        return bool(self.first(1, now_us, {}))

    def _due(self, priority: int, tenant: str, now_us: int) -> list[Pointer]:
        mine = self._lanes[priority, tenant]
        if len(mine) == 1:  # as for most tenants, if there are many
            at_us = self.next_at_us.get(mine[0].lane, now_us)
            return mine if at_us is not None and at_us <= now_us else []
        return [
            pointer
            for pointer in mine
            if (at_us := self.next_at_us.get(pointer.lane, now_us)) is not None and at_us <= now_us
        ]

    def _suspend(self, priority: int, tenants: Sequence[str]) -> None:
        """Skip tenants without a lane to claim from until a job of theirs is due."""
        for tenant in tenants:
            self._turns[priority].remove(tenant)
            known = [self.next_at_us[pointer.lane] for pointer in self._lanes[priority, tenant]]
            at_us = min((at_us for at_us in known if at_us is not None), default=None)
            if at_us is not None:
                heapq.heappush(self._suspended, (at_us, (priority, tenant)))

    def _wake(self, now_us: int) -> None:
        while self._suspended and self._suspended[0][0] <= now_us:
            _, (priority, tenant) = heapq.heappop(self._suspended)
            self._turns.setdefault(priority, RoundRobin()).add([tenant])
