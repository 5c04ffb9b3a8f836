"""Claims of jobs that will soon be due, on stores that support them."""

from collections.abc import Mapping, Sequence

from dueline.core.engine import Engine
from dueline.core.lane import NEEDS_MARK, limits_of
from dueline.core.store import Lease
from dueline.core.store_capabilities import (
    PREFETCH_LEAD_US,
    PREFETCH_US_MAX,
    Prefetched,
    SupportsPrefetch,
)
from dueline.jobs.lane_planner import plan, prospects
from dueline.jobs.lane_rotation import LaneRotation
from dueline.worker.lane_visits import LaneVisits, Visit


class PrefetchClaims:
    """Claims jobs before they are due, and knows when to.

    until_us: Jobs that are due until then are prefetched, or others hold them.
    """

    def __init__(
        self, engine: Engine, worker: str, rotation: LaneRotation, visits: LaneVisits
    ) -> None:
        store = engine.store
        self.until_us = 0
        self._store = store if isinstance(store, SupportsPrefetch) else None
        self._engine = engine
        self._worker = worker
        self._rotation = rotation
        self._visits = visits

    def soon_us(self, asked_us: int) -> int | None:
        """Return when to prefetch: shortly before the next job that is not prefetched yet.

        Args:
            asked_us: The time of the last claim.
        """
        if self._store is None:
            return None
        next_us = self._rotation.next_after(max(asked_us, self.until_us))
        return None if next_us is None else next_us - PREFETCH_LEAD_US

    def claim(
        self,
        limit: int,
        room: Mapping[str, int],
        *,
        asked_us: int,
        aging: Mapping[str, int],
        turn: int,
    ) -> list[Prefetched]:
        """Claim jobs that will soon be due; see `Claimer.prefetch`.

        Args:
            asked_us: The time of the last claim.
            aging: After how long jobs gain a priority, by queue.
            turn: Number of claims so far.
        """
        store, time, soon_us = self._store, self._engine.time, self.soon_us(asked_us)
        if store is None or soon_us is None or soon_us > (now_us := time.earliest_us()):
            return []
        latest_us = time.latest_us()
        until_us = now_us + PREFETCH_US_MAX
        pointers = self._rotation.first(limit, until_us, room, of_each=bool(aging))
        pointers = [
            pointer
            for pointer in pointers
            if not limits_of(pointer.lane) and NEEDS_MARK not in pointer.lane.tenant
        ]
        candidates = prospects(pointers, self._rotation.next_at_us, until_us, aging)

        def prefetch(visit: Visit, most: int) -> Sequence[Prefetched]:
            lasting_us = visit.lease_us + latest_us - now_us
            lease = Lease(now_us, lasting_us, self._worker, self._engine.ids.token())
            claimed = store.prefetch(visit.wants, limit=most, until_us=until_us, lease=lease)
            self._rotation.visited(claimed.next_at_us)
            return claimed.jobs

        wants = plan(candidates, limit=limit, room=room, turn=turn)
        prefetched = self._visits.each(wants, limit, room, prefetch)
        if not prefetched:  # the jobs due so soon are held by others, or gone
            self.until_us = until_us
        return prefetched
