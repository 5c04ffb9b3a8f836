"""Which lanes hold rows, in memory."""

from collections.abc import Iterable, Mapping

from dueline.core.codec import decode, encode
from dueline.core.job import JobId
from dueline.core.lane import Lane
from dueline.core.store_capabilities import LanesHeld
from dueline.stores.memory.cluster import Node


class MemoryCensus:
    """Goes through the lanes of the memory store."""

    _rows: Mapping[Lane, Mapping[JobId, object]]

    def lanes_held(self, *, after: str | None, limit: int) -> LanesHeld:
        """Go through the lanes that hold rows, in their order."""
        return _page((lane for lane, rows in list(self._rows.items()) if rows), after, limit)


class SteppedCensus:
    """Goes through the lanes of the memory store without transactions."""

    _node: Node

    def lanes_held(self, *, after: str | None, limit: int) -> LanesHeld:
        """Go through the lanes that hold rows, in their order."""
        return _page(self._node.lanes_held(), after, limit)


def _page(held: Iterable[Lane], after: str | None, limit: int) -> LanesHeld:
    past = None if after is None else decode(after.encode(), Lane)
    lanes = sorted(lane for lane in held if past is None or lane > past)
    page = lanes[:limit]
    return LanesHeld(page, encode(page[-1]).decode() if len(page) < len(lanes) else None)
