"""What a worker has for jobs with needs, and what its jobs leave of it.

No store counts this: a worker is the only one to use what it has. It claims for no more than is
free, so its jobs never use more than it has (rule Y2). A job that needs more than is free is passed
by others for RESERVE_S; from then on the worker leaves free for it what it needs (rule Y3).
"""

import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from dueline.core.clock import SECOND_US
from dueline.core.job import Job
from dueline.core.lane import NEEDS_MARK, Lane, Pointer
from dueline.core.store import Jobs
from dueline.core.worker_needs import RESERVE_S, Has, needed_by, used_by

RESERVE_US: Final = RESERVE_S * SECOND_US

CHECK_US: Final = SECOND_US
"""Interval at which a lane that waits for resources is tried again, or checked for rule Y3."""


LOOKS_MAX: Final = 8
"""Maximum number of lanes that are read in a check."""


class _Reserved(NamedTuple):
    """What is left free, and for whom. units: by resource."""

    lane: Lane
    units: Mapping[str, int]

    def is_for(self, lane: Lane) -> bool:
        """Return whether the jobs of a lane may use it: those like it, and more urgent ones."""
        own = self.lane
        is_alike = (lane.queue, lane.tenant) == (own.queue, own.tenant)
        return lane.priority > own.priority or (is_alike and lane.priority == own.priority)


class Resources:
    """The resources of one worker.

    Args:
        has: What the worker has.
        store: The jobs, to see how long one waits.
    """

    def __init__(self, has: Has, store: Jobs) -> None:
        self._units = {name: units for name, units in has.items() if isinstance(units, int)}
        self._store = store
        self._free: dict[str, int] = dict(self._units)
        self._waiting: set[Lane] = set()
        self._reserved: _Reserved | None = None
        self._was_free = False
        self._check_us = 0
        self._look_us: dict[Lane, int] = {}

    @property
    def is_awaited(self) -> bool:
        """Whether a lane waits for resources."""
        return bool(self._waiting)

    def begin(
        self, jobs: Iterable[Job], now_us: int, is_left_out: Callable[[Lane], bool]
    ) -> Collection[Lane]:
        """Begin a claim; return the lanes to try again.

        Args:
            jobs: The jobs that the worker holds or runs.
            now_us: The store's time.
            is_left_out: Whether the worker must not claim from a lane.
        """
        used, before = used_by(jobs), self._free
        self._free = {name: units - used[name] for name, units in self._units.items()}
        if (self._waiting or self._reserved) and now_us >= self._check_us:
            self._check_us = now_us + CHECK_US
            self._reserve(now_us, is_left_out)
        elif all(units <= before[name] for name, units in self._free.items()):
            return ()
        freed, self._waiting = self._waiting, set()
        return freed

    def forget(self) -> None:
        """Forget which lanes wait, since the lane list was read again."""
        self._waiting.clear()

    def fitting(self, pointers: Sequence[Pointer]) -> Sequence[Pointer]:
        """Return the lanes of which a job fits now; the others wait."""
        if not any(NEEDS_MARK in pointer.lane.tenant for pointer in pointers):
            return pointers
        fit = [pointer for pointer in pointers if self.room(pointer.lane) > 0]
        if len(fit) < len(pointers):
            self._waiting.update(pointer.lane for pointer in set(pointers).difference(fit))
        return fit

    def room(self, lane: Lane) -> int:
        """Return how many jobs of a lane fit now."""
        units = needed_by(lane).units
        reserved = self._reserved
        kept = reserved.units if reserved is not None and not reserved.is_for(lane) else {}
        rooms = ((self._free[name] - kept.get(name, 0)) // units[name] for name in units)
        return max(0, min(rooms, default=sys.maxsize))

    def take(self, jobs: Iterable[Job]) -> None:
        """Note what newly claimed jobs use."""
        for name, units in used_by(jobs).items():
            self._free[name] -= units

    def _reserve(self, now_us: int, is_left_out: Callable[[Lane], bool]) -> None:
        """Decide for which lane something is left free: the most urgent that waited too long."""
        kept, self._reserved = self._kept(is_left_out), None
        lacking = {lane for lane in self._waiting if self._lacks(lane)}
        self._look_us = {lane: us for lane, us in self._look_us.items() if lane in lacking}
        lanes = [lane for lane in lacking if self._look_us.get(lane, now_us) <= now_us]
        if kept is not None:
            lanes.append(kept)
        for lane in sorted(set(lanes), key=lambda lane: (-lane.priority, lane.bucket))[:LOOKS_MAX]:
            first = self._store.scan(lane, after=None, until_us=now_us, limit=1).jobs
            since_us = first[0].at_us if first else now_us
            if since_us <= now_us - RESERVE_US:
                self._reserved = _Reserved(lane, needed_by(lane).units)
                return
            self._look_us[lane] = since_us + RESERVE_US

    def _kept(self, is_left_out: Callable[[Lane], bool]) -> Lane | None:
        """Return the lane for which something goes on to be left free; None for none.

        If all that it needs has been free since the last check, its limits hold it back, say.
        """
        was_free, self._was_free = self._was_free, False
        if self._reserved is None or is_left_out(self._reserved.lane):
            return None
        is_free = not self._lacks(self._reserved.lane)
        if was_free and is_free:
            return None
        self._was_free = is_free
        return self._reserved.lane

    def _lacks(self, lane: Lane) -> bool:
        """Return whether more is needed than is free, also without what is reserved."""
        units = needed_by(lane).units
        return any(self._free[name] < count for name, count in units.items())
