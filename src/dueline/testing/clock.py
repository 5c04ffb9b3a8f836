"""A clock that tests move."""

from datetime import datetime, timedelta

from dueline.core.clock import SECOND_US, SystemClock, duration_us, to_datetime
from dueline.core.errors import BadInput


class VirtualClock:
    """Stands still until it is moved; who sleeps by it moves it, and does not wait.

    It starts at the machine's present, so that an instant that the code under test takes from
    elsewhere is near.
    """

    def __init__(self) -> None:
        self._wall_us = SystemClock().wall_us()
        self._monotonic_us = SECOND_US

    @property
    def now(self) -> datetime:
        """The present, in UTC."""
        return to_datetime(self._wall_us)

    def advance(
        self, seconds: float = 0, *, minutes: float = 0, hours: float = 0, days: float = 0
    ) -> None:
        """Let time pass.

        Raises: BadInput: it would run backwards.
        """
        span = timedelta(seconds=seconds, minutes=minutes, hours=hours, days=days)
        if (passed_us := duration_us(span)) < 0:
            raise BadInput(f"Time cannot go back by {-span}.")
        self._wall_us += passed_us
        self._monotonic_us += passed_us

    def wall_us(self) -> int:
        """Read the wall clock."""
        return self._wall_us

    def monotonic_us(self) -> int:
        """Read the clock that never jumps."""
        return self._monotonic_us

    def sleep(self, seconds: float) -> None:
        """Move on instead of waiting."""
        self.advance(seconds)
