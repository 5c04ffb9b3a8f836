"""Visits of lanes: wants, in order, become claims that share a lease, slots and limits."""

from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple, TypeVar

from dueline.core.engine import Engine
from dueline.core.errors import StoreUnavailable
from dueline.core.lane import LIMIT_MARK, has_costs, limits_of, needs_text
from dueline.core.store import Want

_Claimed = TypeVar("_Claimed")


class Visit(NamedTuple):
    """One claim. queue: That with its own slots, or ""; limits, needs: of all its jobs."""

    lease_us: int
    queue: str
    limits: tuple[str, ...]
    needs: str
    wants: Sequence[Want]


class LaneVisits:
    """Visits lanes for one worker. lease_us: as of `Claimer`."""

    def __init__(self, engine: Engine, lease_us: int | None) -> None:
        self._engine = engine
        self._lease_us = lease_us

    def each(
        self,
        wants: Sequence[Want],
        limit: int,
        room: Mapping[str, int],
        claim: Callable[[Visit, int], Sequence[_Claimed]],
    ) -> list[_Claimed]:
        """Claim up to `limit` jobs; `claim` makes each visit, for at most a number of jobs."""
        left = dict(room)
        claimed: list[_Claimed] = []
        for visit in self._planned(wants, room):
            most = min(limit - len(claimed), left.get(visit.queue, limit))
            if most <= 0:
                continue
            try:
                jobs = claim(visit, most)
            except StoreUnavailable:
                if not claimed:
                    raise
                break  # jobs that are claimed already must be returned
            claimed += jobs
            if visit.queue in left:
                left[visit.queue] -= len(jobs)
        return claimed

    def _planned(self, wants: Sequence[Want], room: Mapping[str, int]) -> list[Visit]:
        """Group wants, in order."""
        settings = self._engine.catalog.settings
        kinds = {
            queue: (self._lease_us or settings(queue).lease_us, queue if queue in room else "")
            for queue in {want.lane.queue for want in wants}
        }
        if not any(LIMIT_MARK in want.lane.tenant for want in wants):
            runs = groupby(wants, key=lambda want: kinds[want.lane.queue])
            return [Visit(*kind, (), "", list(run)) for kind, run in runs]

        def kind_of(want: Want) -> tuple[tuple[int, str], tuple[str, ...], str, object]:
            lane = want.lane
            limits, needs = limits_of(lane), needs_text(lane)
            if has_costs(lane):  # the first jobs are read before permits are taken
                return kinds[lane.queue], limits, needs, lane
            is_own = bool(limits or needs)
            return kinds[lane.queue], limits, needs, (lane.queue, lane.priority) if is_own else None

        limited = groupby(wants, key=kind_of)
        return [Visit(*kind, names, need, list(run)) for (kind, names, need, _), run in limited]
