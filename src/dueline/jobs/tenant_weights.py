"""Shares of tenants with weights.

Each tenant has a clock that advances with each of its jobs, more slowly the larger its weight. The
tenant with the earliest clock is next. Idle tenants do not accumulate credit: when one returns, its
clock is set to the earliest clock of the others.
"""

import heapq
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypeVar

from dueline.core.lane import Lane
from dueline.jobs.tenant_round_robin import Kind, in_turns

T = TypeVar("T")

LOOKED_AT: Final = 1_000
"""Number of tenants with due jobs up to which weights hold exactly."""

KNOWN_MIN: Final = 1_000


class TenantWeights:
    """The clocks of one worker's tenants. weights: those other than 1."""

    def __init__(self) -> None:
        self.weights: Mapping[str, int] = {}
        self._clocks: dict[Kind, float] = {}
        self._here: set[Kind] = set()

    def present(self, kinds: Iterable[Kind]) -> None:
        """Set which tenants have due jobs; one that returns has no credit."""
        here = set(kinds)
        for priority in {priority for priority, _ in here}:
            self._set_clocks({kind for kind in here if kind[0] == priority})
        self._here = here
        if len(self._clocks) > 2 * max(len(here), KNOWN_MIN):
            self._clocks = {kind: self._clocks[kind] for kind in here}

    def _set_clocks(self, here: set[Kind]) -> None:
        known = here & self._here or here & self._clocks.keys()
        floor = min((self._clocks[kind] for kind in known), default=0.0)
        for kind in here - self._here:
            self._clocks[kind] = max(floor, self._clocks.get(kind, floor))

    def shares(self, kinds: Iterable[Kind], limit: int) -> dict[Kind, int]:
        """Share jobs among present tenants of one priority; the next one is first.

        Args:
            kinds: The tenants.
            limit: Number of jobs to share.

        Returns:
            The number of jobs of each tenant that gets any.
        """
        heap = [(self._clocks[kind], kind) for kind in kinds]
        heapq.heapify(heap)
        shares: Counter[Kind] = Counter()
        for _ in range(limit if heap else 0):
            clock, kind = heap[0]
            shares[kind] += 1
            heapq.heapreplace(heap, (clock + 1 / self._weight(kind), kind))
        return dict(shares)

    def interleaved(self, jobs: Sequence[T], lanes: Sequence[Lane]) -> list[T]:
        """Order jobs that were just claimed as if each had been claimed by itself.

        Args:
            jobs: The jobs; those of a tenant stay in their order.
            lanes: The lane of each.
        """
        return in_turns(
            jobs,
            lanes,
            lambda kind, number: self._clocks.get(kind, 0.0) + number / self._weight(kind),
        )

    def given(self, kinds: Iterable[Kind]) -> None:
        """Advance the clocks of tenants whose jobs were taken, once for each job."""
        self._advance(kinds, 1)

    def returned(self, kinds: Iterable[Kind]) -> None:
        """Set back the clocks of tenants whose jobs were taken and not started."""
        self._advance(kinds, -1)

    def _advance(self, kinds: Iterable[Kind], turns: int) -> None:
        for kind, count in Counter(kinds).items():
            if kind in self._clocks:
                self._clocks[kind] += turns * count / self._weight(kind)

    def _weight(self, kind: Kind) -> int:
        return self.weights.get(kind[1], 1)
