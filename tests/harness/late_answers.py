"""A client whose requests land late."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import cycle

from dueline.core.clock import Clock
from dueline.core.lane import Lane
from dueline.core.store import Write
from dueline.core.watermark import StreamWatermarks
from dueline.stores.cursor_cache import Key
from dueline.stores.lane_index import LaneIndex
from tests.harness.cluster import Cluster, GivenUp, Node
from tests.harness.row_changes import Change, Found, holds
from tests.harness.stepped_store import SteppedMemoryStore

ON_TIME = -1
"""A request that is answered."""

TURNS = (0, 1, ON_TIME, 2, 1, 3, ON_TIME, 1, 1)
"""How many steps come before the one that a request lands before, request by request."""


class LateNode(Node):
    """Gives conditional writes up that hold, by turns; each lands just before a later step.

    One that does not hold is answered: nobody could tell afterwards why.
    """

    def __init__(self, cluster: Cluster, turns: Iterator[int]) -> None:
        """Take the data, and how many steps each request is late."""
        super().__init__(cluster, self._give_up)
        self._turns = turns
        self._would_hold = False

    def decide(self, lane: Lane, changes: Sequence[Change]) -> Mapping[Key, Found] | None:
        """Give it up by turns."""
        rows = self.cluster.rows.get(lane, {})
        self._would_hold = all(holds(rows.get(change.key), change) for change in changes)
        return super().decide(lane, changes)

    def commit(self, partition: str, writes: Sequence[Write], now_us: int) -> bool:
        """Give it up by turns."""
        live = {put.key: put.version for put in self.read(partition, now_us)}
        self._would_hold = all(write.expect in (None, live.get(write.key, b"")) for write in writes)
        return super().commit(partition, writes, now_us)

    def _give_up(self, name: str) -> None:
        if name in ("decide", "commit") and self._would_hold:
            skips = next(self._turns)
            if skips != ON_TIME:
                raise GivenUp(skips=skips)


class LateClient(SteppedMemoryStore):
    """A client of a cluster: of nine conditional writes seven are given up, and land late."""

    def __init__(
        self, clock: Clock, *, cluster: Cluster, turns: Iterator[int] | None = None
    ) -> None:
        """Take the clock, the data, and how many steps each request is late in turn."""
        super().__init__(clock, cluster=cluster)
        self._node = LateNode(cluster, turns or cycle(TURNS))
        self._lane_index = LaneIndex(self._node)
        self._watermarks = StreamWatermarks(self._node)
