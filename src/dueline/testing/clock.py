"""A clock that tests control."""

from datetime import datetime, timedelta

from dueline.core.clock import SECOND_US, SystemClock, duration_us, to_datetime
from dueline.core.errors import BadInput


class VirtualClock:
    """A clock that only moves when a test advances it; `sleep` advances it without a wait.

    It starts at the machine's present time, so that times from other sources are close to it.
    """

    def __init__(self) -> None:
        self._wall_us = SystemClock().wall_us()
        self._monotonic_us = SECOND_US

    @property
    def now(self) -> datetime:
        """The present time in UTC."""
        return to_datetime(self._wall_us)

    def advance(
        self, seconds: float = 0, *, minutes: float = 0, hours: float = 0, days: float = 0
    ) -> None:
        """Advance the clock by the sum of the durations.

        Args:
            seconds: Number of seconds.
            minutes: Number of minutes.
            hours: Number of hours.
            days: Number of days.

        Raises:
            BadInput: The sum is negative.
        """
        span = timedelta(seconds=seconds, minutes=minutes, hours=hours, days=days)
        if (passed_us := duration_us(span)) < 0:
            raise BadInput(f"The clock cannot go back by {-span}.", hint="Use a positive duration.")
        self._wall_us += passed_us
        self._monotonic_us += passed_us

    def wall_us(self) -> int:
        """Read the wall clock."""
        return self._wall_us

    def monotonic_us(self) -> int:
        """Read the monotonic clock."""
        return self._monotonic_us

    def sleep(self, seconds: float) -> None:
        """Advance the clock instead of waiting."""
        self.advance(seconds)
