"""Space on the disk that new jobs leave to claims and outcomes. Hot path: the benchmark `default`.

A queue whose disk fills up must still shrink: claims, outcomes and results go on while new jobs are
refused, so that stored jobs run and are deleted.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from time import monotonic
from typing import Final

from dueline.core.errors import StoreUnavailable
from dueline.core.job import Job
from dueline.core.store import Group

MIB: Final = 2**20
RESERVE_MIB: Final = 64
"""Default space that new jobs leave free, in MiB: as long as the log becomes."""

SHARE_MAX: Final = 0.05
"""Maximum share of the disk that is reserved by default: disks may be small."""

CHECKED_S: Final = 0.25
"""Time after which the free space is read again, in seconds."""

LARGE: Final = 64
"""Number of jobs from which each call reads it."""

LARGE_BYTES: Final = 2**16
"""Size of the first job's arguments from which each call reads it."""

NEAR: Final = 2
"""Each call reads it while less than this many times the reserve is free."""


class Reserve:
    """The free space of a file's disk, read a few times a second.

    Args:
      path: The file.
      mib: Space that new jobs leave free, in MiB; None for the default, 0 for none.
    """

    def __init__(self, path: Path, mib: int | None = None) -> None:
        self._path = path
        self._folder, self._log = path.parent, path.with_name(f"{path.name}-wal")
        self._mib = mib
        self._next_s = float("inf") if mib == 0 else 0.0

    def expect_room(self, jobs: Sequence[Job]) -> None:
        """Raise StoreUnavailable if new jobs would use the reserved space; nothing is written."""
        if monotonic() >= self._next_s or len(jobs) >= LARGE or len(jobs[0].body) >= LARGE_BYTES:
            self._check(jobs)

    def expect_room_for(self, groups: Sequence[Group]) -> None:
        """Do the same for groups that insert new jobs, unless they end other jobs."""
        if any(group.verdicts for group in groups):
            return
        for group in groups:
            if group.jobs:
                self.expect_room(group.jobs)
                return

    def room(self) -> tuple[int, int] | None:
        """Return the free space without what the log needs, and the reserved one, in bytes.

        None if it cannot be known.
        """
        try:
            disk = os.statvfs(self._folder)
        except (OSError, AttributeError):
            return None
        size, free = disk.f_frsize * disk.f_blocks, disk.f_frsize * disk.f_bavail
        free -= self._log_bytes()
        if self._mib is not None:
            return max(0, free), self._mib * MIB
        return max(0, free), min(RESERVE_MIB * MIB, round(SHARE_MAX * size))

    def _log_bytes(self) -> int:
        """Return the length of the log: a checkpoint copies up to this much into the file."""
        try:
            return self._log.stat().st_size
        except OSError:
            return 0

    def _check(self, jobs: Sequence[Job]) -> None:
        if self._mib == 0:
            return
        room = self.room()
        if room is None or room[0] >= NEAR * room[1]:
            self._next_s = monotonic() + CHECKED_S
            return
        self._next_s = 0.0
        if room[0] >= room[1]:
            return
        if jobs[0].hop:  # it is brought back or moved, and was accepted before
            return
        free, reserved = room
        raise StoreUnavailable(
            f"The disk of {self._path} has {free / MIB:.1f} MiB left, and {reserved / MIB:.1f} MiB "
            "are reserved for claims and outcomes; nothing was enqueued.",
            hint="Free some space; jobs that are stored still run.",
        )
