"""Lanes that a worker lets be because of their limits."""

from collections.abc import Collection, Iterable, Mapping

from dueline.core.lane import Lane


class BlockedLanes:
    """Which limits allowed nothing more when they were asked, and the lanes that wait for that.

    since_us: since when the first jobs of such lanes wait, where it was known: they age meanwhile.
    """

    def __init__(self) -> None:
        self.since_us: dict[Lane, int] = {}
        self._until_us: dict[str, int] = {}
        self._lanes: dict[str, set[Lane]] = {}

    def has_refusals(self) -> bool:
        """Return whether a limit was refused since the lane list was last read."""
        return bool(self._until_us)

    def asked_before(self, instant_us: int) -> list[str]:
        """List the limits that are to be asked again before an instant."""
        return [name for name, until_us in self._until_us.items() if until_us < instant_us]

    def among(self, limits: Iterable[str], now_us: int) -> list[str]:
        """List those of some limits that need not be asked again yet."""
        return [name for name in limits if self._until_us.get(name, now_us) > now_us]

    def refused(self, until_us: Mapping[str, int]) -> None:
        """Learn which limits allow nothing more, and when they are to be asked again."""
        self._until_us.update(until_us)

    def block(
        self, lanes: Collection[Lane], limits: Collection[str], heads: Mapping[Lane, int | None]
    ) -> int:
        """Let lanes be because of these limits, which were refused; tell until when.

        Args: heads: when the first jobs of lanes became due, as far as it is known.
        """
        for name in limits:
            self._lanes.setdefault(name, set()).update(lanes)
        for lane in lanes:
            head_us = heads.get(lane)
            if head_us is not None:
                self.since_us.setdefault(lane, head_us)
        return max(self._until_us[name] for name in limits)

    def take(self, limits: Iterable[str]) -> set[Lane]:
        """List the lanes that waited for one of these limits, and let them be no longer."""
        found: set[Lane] = set()
        for name in limits:
            self._until_us.pop(name, None)
            found |= self._lanes.pop(name, set())
        return found

    def visited(self, lanes: Iterable[Lane]) -> None:
        """Learn of visits, which tell of first jobs themselves."""
        if self.since_us:
            for lane in lanes:
                self.since_us.pop(lane, None)

    def forget(self) -> None:
        """Know of none any more."""
        self.since_us.clear()
        self._until_us.clear()
        self._lanes.clear()
