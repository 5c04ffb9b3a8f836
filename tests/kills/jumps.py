"""Wall clocks that are off: set all the time, or those of other machines."""

import os
import random
import select
import time
from pathlib import Path
from typing import Final, SupportsIndex

from dueline.core.clock import SystemClock

JUMPS_VARIABLE = "DUELINE_KILLS_JUMPS"
"""Set where the wall clocks of all processes jump, but for the store's."""

JUMPS_US = (-600_000_000, 0, 600_000_000)
"""How far it is off: ten minutes behind, right, ten minutes ahead."""

OFF_VARIABLE: Final = "DUELINE_KILLS_OFF_S"
"""Set where the system's clock itself is off: by how many seconds."""

OFF_S: Final = 600

LIBRARIES: Final = Path("/usr/lib")
LIBRARY: Final = "*/faketime/libfaketimeMT.so.1"
"""What stands between a process and its clock (the package libfaketime)."""

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


class NoLibraryError(Exception):
    """Nothing here can set a process's clock apart."""


def clock_off(off_s: int) -> dict[str, str]:
    """Give the environment of a process whose clock is off, as on another machine.

    Raises: NoLibraryError: libfaketime is not installed.
    """
    if not off_s:
        return {}
    library = next(LIBRARIES.glob(LIBRARY), None)
    if library is None:
        raise NoLibraryError("libfaketime is not installed (the package libfaketime)")
    return {
        "LD_PRELOAD": str(library),
        "FAKETIME": f"{off_s:+d}s",
        "DONT_FAKE_MONOTONIC": "1",  # nobody sets those
        OFF_VARIABLE: str(off_s),
    }


def _wait(seconds: float | SupportsIndex) -> None:
    select.select((), (), (), float(seconds))


def mend_sleep() -> None:
    """Let this process sleep though its clock is off.

    libfaketime 0.9 refuses waits until an instant of the monotonic clock, as `time.sleep` asks.
    """
    if OFF_VARIABLE in os.environ:
        time.sleep = _wait


def true_us() -> int:
    """Read the wall clock, right even where this process's is off."""
    return time.time_ns() // 1000 - int(os.environ.get(OFF_VARIABLE, "0")) * 1_000_000
