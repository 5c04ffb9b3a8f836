"""Polls the lane lists when it is time to."""

from dueline.core.clock import Clock, StoreTime
from dueline.core.wakeup import WakeupListener
from dueline.worker.backoff import PollTimer
from dueline.worker.claimer import Claimer

WAIT_US_MIN = 20


class LaneListPoller:
    """Reads the lane lists at intervals, and at once when a wakeup arrives."""

    def __init__(
        self,
        claimer: Claimer,
        listener: WakeupListener,
        pace: PollTimer,
        *,
        time: StoreTime,
        clock: Clock,
    ) -> None:
        self._claimer = claimer
        self._listener = listener
        self._pace = pace
        self._time = time
        self._clock = clock
        self._is_pending = False  # a wakeup arrived since the last poll

    def poll(self) -> None:
        """Read the lane lists. If that fails, a poll is still due."""
        if self._was_notified():  # wakeups from here on need another poll
            self._pace.notified()
            self._is_pending = False
        began_us = self._clock.monotonic_us()
        self._claimer.refresh()
        self._pace.polled(began_us, self._clock.monotonic_us())

    def poll_if_due(self) -> bool:
        """Poll if it is time to; return whether it was."""
        if not self._pace.is_due(self._clock.monotonic_us()):
            return False
        self.poll()
        return True

    def poll_if_due_or_notified(self) -> bool:
        """Poll before claiming, if it is time to or a wakeup arrived."""
        if self._was_notified():
            self._pace.notified_while_busy()
        return self.poll_if_due()

    def poll_if_notified(self) -> bool:
        """Poll if a wakeup arrived, unless polls would take too much of the time."""
        if not self._was_notified():
            return False
        self._pace.notified()
        return self.poll_if_due()

    def _was_notified(self) -> bool:
        self._is_pending = self._listener.take() or self._is_pending
        return self._is_pending

    def close(self) -> None:
        """Close the listener."""
        self._listener.close()

    def found(self) -> None:
        """Note that jobs were found."""
        self._pace.found()

    def wait_us(self, most_us: int | None, *, is_ahead: bool = False) -> int:
        """Return the time until the next poll, or until the next known job is due.

        Args:
            most_us: Maximum to return; None for no maximum.
            is_ahead: Jobs may be claimed shortly before their time.
        """
        waits_us = [self._pace.wait_us(self._clock.monotonic_us())]
        if most_us is not None:
            waits_us.append(most_us)
        next_us = self._claimer.next_us(is_ahead=is_ahead)
        if next_us is not None:
            waits_us.append(next_us - self._time.earliest_us())
        return max(min(waits_us), WAIT_US_MIN)
