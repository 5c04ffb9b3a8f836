"""Lanes with limits: permits for claims from them, and which of them wait for permits."""

from collections.abc import Collection, Sequence

from dueline.core.clock import SECOND_US
from dueline.core.errors import StoreCorrupt
from dueline.core.job import Job
from dueline.core.lane import Lane, Pointer, has_costs, limits_of
from dueline.core.logging import log
from dueline.jobs.lane_rotation import LaneRotation
from dueline.limits.blocked_lanes import BlockedLanes
from dueline.limits.needs import ANY, Needs, line_of, units_of
from dueline.limits.permits import SLOTS, Granted, PermitSource
from dueline.worker.lane_visits import Visit

MOMENT_US = 10 * SECOND_US
"""How long a burst waits for a limit."""

DAMAGED_US = 60 * SECOND_US
"""How long a limit or queue whose record cannot be read is skipped; longer than MOMENT_US, so that
a burst does not wait for it.
"""


class LimitedLanes:
    """Takes permits for claims, and postpones lanes whose limits refused.

    Args:
      permits: Where permits are taken; None where no lane has limits.
      rotation: The lanes that a claim considers.

    Attributes:
      blocked: The lanes that are postponed.
    """

    def __init__(self, permits: PermitSource | None, rotation: LaneRotation) -> None:
        self.blocked = BlockedLanes()
        self._permits = permits
        self._rotation = rotation
        self._warned_us: dict[str, int] = {}

    def lacks_slots(self, now_us: int) -> bool:
        """Return whether no slot was left for jobs with limits a moment ago."""
        return bool(self.blocked.among((SLOTS,), now_us))

    def is_awaited(self, now_us: int) -> bool:
        """Return whether a limit delays jobs for a moment only."""
        soon = self.blocked.asked_before(now_us + MOMENT_US)
        return self._permits is not None and any(map(self._permits.is_open, soon))

    def without_refused(self, pointers: Sequence[Pointer], now_us: int) -> Sequence[Pointer]:
        """Postpone all lanes whose limits were just refused, and return the others.

        A claim postpones one lane of each kind only, so each bucket would take a round of its own.
        Where no slot is left for jobs with limits, all of their lanes are postponed at once: there
        may be one for each of ten thousand keys.
        """
        if not self.blocked.has_refusals():
            return pointers
        lacks_slots = self.lacks_slots(now_us)
        free: list[Pointer] = []
        without_slot: list[Lane] = []
        for pointer in pointers:
            limits = limits_of(pointer.lane)
            if limits and lacks_slots:
                without_slot.append(pointer.lane)
            elif limits and (lacking := self._refusing(pointer.lane, limits, now_us)):
                self._postpone([pointer.lane], lacking)
            else:
                free.append(pointer)
        if without_slot:
            self._postpone(without_slot, (SLOTS,))
        return free

    def take(
        self,
        visit: Visit,
        most: int,
        now_us: int,
        needs: Needs = ANY,
    ) -> tuple[int, int]:
        """Take permits for lanes with limits, or postpone the lanes.

        Args: needs: what the first jobs of a lane with costs need.

        Returns:
            The number of jobs that may be claimed, and until when their claims may last.
        """
        assert self._permits is not None, "lanes with limits are left out without permits"
        limits, wants, lease_us = visit.limits, visit.wants, visit.lease_us
        lane = wants[0].lane
        lacking: Collection[str] = self._refusing(lane, limits, now_us)
        if not lacking:
            try:
                granted = self._permits.take(
                    limits, most, priority=lane.priority, queue=lane.queue, lease_us=lease_us,
                    needs=needs,
                )  # fmt: skip
            except StoreCorrupt as error:  # lanes with other limits continue
                self._warn(f"limits {', '.join(limits)}", error, now_us)
                granted = Granted(0, 0, dict.fromkeys(limits, now_us + DAMAGED_US))
            if granted.jobs:
                return granted.jobs, granted.until_us
            self.blocked.refused(granted.lacking)
            lacking = granted.lacking.keys()
        self._postpone([want.lane for want in wants], lacking)
        return 0, 0

    def used(
        self, limits: Sequence[str], most: int, jobs: Sequence[Job], needs: Needs = ANY
    ) -> None:
        """Note which of the permits for `most` jobs the claimed jobs use."""
        if self._permits is not None:
            if most > len(jobs):
                back: dict[str, int] = {}
                if needs.totals:
                    used = units_of(jobs, limits)
                    back = {name: needs.units(name, most) - used[name] for name in limits}
                self._permits.unused(limits, most - len(jobs), back)
            self._permits.used(limits, jobs)

    def listed(self) -> None:
        """Ask all limits again, and give up the places of lines that are not in the lane list."""
        self.blocked.forget()
        if self._permits is not None and (waiting := self._permits.lines()):
            listed = {line_of(lane) for lane in self._rotation.each() if has_costs(lane)}
            for line in waiting - listed:
                self._permits.leave_line(line)

    def give_up_places(self, lane: Lane) -> None:
        """Give up what the line of a lane without due jobs waits for: another worker took them."""
        if self._permits is not None:
            self._permits.leave_line(line_of(lane))

    def _refusing(self, lane: Lane, limits: Sequence[str], now_us: int) -> Collection[str]:
        """Return which limits of a lane are not to be asked again yet.

        What the first line waits for is reserved, so others are refused for its sake. That does not
        postpone the line itself, or its place would expire while the others ask in its stead.
        """
        refusing = self.blocked.among(limits, now_us)
        if refusing and self._permits is not None and has_costs(lane):
            line, permits = line_of(lane), self._permits
            return [name for name in refusing if not permits.is_first_in_line(name, line)]
        return refusing

    def _postpone(self, lanes: Collection[Lane], lacking: Collection[str]) -> None:
        """Skip lanes until the limits that refused them may be asked again."""
        until_us = self.blocked.block(lanes, lacking, self._rotation.next_at_us)
        self._rotation.visited(dict.fromkeys(lanes, until_us))

    def _warn(self, what: str, error: StoreCorrupt, now_us: int) -> None:
        """Log what cannot be read, at most once in DAMAGED_US."""
        if now_us - self._warned_us.get(what, -DAMAGED_US) >= DAMAGED_US:
            self._warned_us[what] = now_us
            log.error("%s cannot be read; jobs that need it wait: %s", what, error)
