"""Lanes that a worker skips because their limits are exhausted."""

from collections.abc import Collection, Iterable, Mapping

from dueline.core.lane import Lane


class BlockedLanes:
    """The limits that refused when they were last asked, and the lanes that wait for them.

    since_us: since when the first jobs of such lanes have waited, where known: they age meanwhile.
    """

    def __init__(self) -> None:
        self.since_us: dict[Lane, int] = {}
        self._until_us: dict[str, int] = {}
        self._lanes: dict[str, set[Lane]] = {}

    def has_refusals(self) -> bool:
        """Return whether a limit refused since the lane list was last read."""
        return bool(self._until_us)

    def asked_before(self, instant_us: int) -> list[str]:
        """Return the limits to ask again before a timestamp."""
        return [name for name, until_us in self._until_us.items() if until_us < instant_us]

    def among(self, limits: Iterable[str], now_us: int) -> list[str]:
        """Return which of these limits are not to be asked again yet."""
        return [name for name in limits if self._until_us.get(name, now_us) > now_us]

    def refused(self, until_us: Mapping[str, int]) -> None:
        """Record limits that refused, and when to ask each again."""
        self._until_us.update(until_us)

    def block(
        self, lanes: Collection[Lane], limits: Collection[str], heads: Mapping[Lane, int | None]
    ) -> int:
        """Block lanes because these limits refused; return until when.

        Args: heads: when the first jobs of lanes became due, as far as known.
        """
        for name in limits:
            self._lanes.setdefault(name, set()).update(lanes)
        for lane in lanes:
            head_us = heads.get(lane)
            if head_us is not None:
                self.since_us.setdefault(lane, head_us)
        return max(self._until_us[name] for name in limits)

    def take(self, limits: Iterable[str]) -> set[Lane]:
        """Unblock the lanes that waited for one of these limits; return them."""
        lanes: set[Lane] = set()
        for name in limits:
            self._until_us.pop(name, None)
            lanes |= self._lanes.pop(name, set())
        return lanes

    def visited(self, lanes: Iterable[Lane]) -> None:
        """Record that lanes were scanned: a scan reads their first jobs itself."""
        if self.since_us:
            for lane in lanes:
                self.since_us.pop(lane, None)

    def forget(self) -> None:
        """Unblock all lanes."""
        self.since_us.clear()
        self._until_us.clear()
        self._lanes.clear()
