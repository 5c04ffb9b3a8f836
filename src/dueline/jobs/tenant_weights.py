"""How much of the turns each tenant has, where some have more than others.

Each tenant has a clock that runs by the jobs it was given, slower the more it weighs; whoever's
clock is furthest behind is next. Who had nothing to do saves up nothing: on its return its clock
is set to that of the furthest behind of those who had.
"""

import heapq
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

Kind = tuple[int, str]
"""A priority and a tenant: of those of one priority, each has its turns."""

LOOKED_AT: Final = 1_000
"""Among so many tenants with jobs that are due, weights hold exactly."""

KNOWN_MIN: Final = 1_000


class TenantWeights:
    """The clocks of one worker's tenants. weights: of those that do not weigh 1."""

    def __init__(self) -> None:
        self.weights: Mapping[str, int] = {}
        self._clocks: dict[Kind, float] = {}
        self._here: set[Kind] = set()

    def present(self, kinds: Iterable[Kind]) -> None:
        """Learn who has jobs that are due; who comes back has saved up nothing."""
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
        """Share jobs out among present tenants of one priority; who is next is first.

        Args: limit: how many jobs there are to share.

        Returns: of each tenant that comes to have any, how many.
        """
        heap = [(self._clocks[kind], kind) for kind in kinds]
        heapq.heapify(heap)
        found: Counter[Kind] = Counter()
        for _ in range(limit if heap else 0):
            clock, kind = heap[0]
            found[kind] += 1
            heapq.heapreplace(heap, (clock + 1 / self._weight(kind), kind))
        return dict(found)

    def given(self, kinds: Iterable[Kind]) -> None:
        """Learn whose jobs were taken, once for each."""
        for kind, count in Counter(kinds).items():
            if kind in self._clocks:
                self._clocks[kind] += count / self._weight(kind)

    def _weight(self, kind: Kind) -> int:
        return self.weights.get(kind[1], 1)
