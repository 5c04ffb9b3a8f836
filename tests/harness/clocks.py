"""A clock that a test moves by hand."""

from dueline.core.clock import SECOND_US

NOW_US = 1_767_225_600 * SECOND_US
"""The tests' present: 2026-01-01."""


class HandClock:
    """Stands still until it is moved; sleeping moves it, and takes no time.

    slept: the seconds of each sleep. drift_ppm: how much faster its monotonic side runs.
    """

    def __init__(
        self, wall_us: int = NOW_US, *, monotonic_us: int = 7 * SECOND_US, drift_ppm: int = 0
    ) -> None:
        """Take the first readings; a monotonic clock may start anywhere."""
        self._wall_us = wall_us
        self._monotonic_us = monotonic_us
        self._drift_ppm = drift_ppm
        self.slept: list[float] = []

    def wall_us(self) -> int:
        """Read the wall clock."""
        return self._wall_us

    def monotonic_us(self) -> int:
        """Read the clock that never jumps."""
        return self._monotonic_us

    def sleep(self, seconds: float) -> None:
        """Move on instead of waiting."""
        self.slept.append(seconds)
        self.advance(seconds)

    def advance(self, seconds: float = 0, *, us: int = 0) -> None:
        """Let time pass on both sides."""
        passed_us = round(seconds * SECOND_US) + us
        self._wall_us += passed_us
        self._monotonic_us += passed_us + passed_us * self._drift_ppm // 1_000_000

    def jump(self, seconds: float) -> None:
        """Set the wall clock to another time; nothing else moves."""
        self._wall_us += round(seconds * SECOND_US)
