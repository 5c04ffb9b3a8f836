"""A machine's wall clock that somebody sets all the time."""

import os
import random
import time
from pathlib import Path

from dueline.clock import SystemClock

JUMPS_VARIABLE = "DUELINE_KILLS_JUMPS"
"""Set where the wall clocks of all processes jump, but for the store's."""

JUMPS_US = (-600_000_000, 0, 600_000_000)
"""How far it is off: ten minutes behind, right, ten minutes ahead."""

EVERY_S = 0.4
"""How often it is set: a few times while a job runs late, or a lease lasts."""


class JumpingClock(SystemClock):
    """The machine's clocks, the wall clock off by something else every now and then.

    Each process has its own, and notes in a file, a byte each, how often it was read after it
    had been set.
    """

    def __init__(self, folder: Path) -> None:
        """Take where the file is to be."""
        self._folder = folder
        self._set_s = 0.0
        self._off_us = 0

    def wall_us(self) -> int:
        """Read the wall clock: right, or ten minutes off."""
        now_s = time.monotonic()
        if now_s - self._set_s > EVERY_S:
            self._set_s = now_s
            self._off_us = random.choice([off for off in JUMPS_US if off != self._off_us])
            with (self._folder / f"{os.getpid()}.jumps").open("ab") as file:
                file.write(b".")
        return super().wall_us() + self._off_us


def jumps_in(folder: Path) -> int:
    """Count the jumps that processes saw."""
    return sum(path.stat().st_size for path in folder.glob("*.jumps"))
