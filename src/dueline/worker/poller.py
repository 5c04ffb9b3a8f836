"""Looks for work, when it is time to."""

from dueline.core.clock import Clock, StoreTime
from dueline.core.wakeup import WakeupListener
from dueline.worker.backoff import Pace
from dueline.worker.claimer import Claimer

WAIT_US_MIN = 20


class Lookout:
    """Reads the lane lists: by and by, and at once when something is heard."""

    def __init__(
        self,
        claimer: Claimer,
        listener: WakeupListener,
        pace: Pace,
        *,
        time: StoreTime,
        clock: Clock,
    ) -> None:
        self._claimer = claimer
        self._listener = listener
        self._pace = pace
        self._time = time
        self._clock = clock
        self._is_called = False  # something was heard, and there was no look since

    def look(self) -> None:
        """Read the lane lists. If that fails, a look is still due."""
        if self._is_heard():  # what is heard from here on asks for another look
            self._pace.called()
            self._is_called = False
        began_us = self._clock.monotonic_us()
        self._claimer.refresh()
        self._pace.looked(began_us, self._clock.monotonic_us())

    def poll_if_due(self) -> bool:
        """Look if it is time to; tell whether it was."""
        if not self._pace.is_due(self._clock.monotonic_us()):
            return False
        self.look()
        return True

    def poll_if_due_or_notified(self) -> bool:
        """Look before what is known is claimed: if it is time to, or something was heard."""
        if self._is_heard():
            self._pace.urged()
        return self.poll_if_due()

    def poll_if_notified(self) -> bool:
        """Look if something was heard, unless looks would take too much of the time."""
        if not self._is_heard():
            return False
        self._pace.called()
        return self.poll_if_due()

    def _is_heard(self) -> bool:
        self._is_called = self._listener.take() or self._is_called
        return self._is_called

    def close(self) -> None:
        """Hear no more."""
        self._listener.close()

    def found(self) -> None:
        """Note that there was work."""
        self._pace.found()

    def wait_us(self, most_us: int | None, *, is_ahead: bool = False) -> int:
        """Tell how long it is to the next look, or to the next job that is known, if sooner.

        Args: most_us: no longer than this; None for no such limit. is_ahead: a job may be
          claimed somewhat before its time.
        """
        waits_us = [self._pace.wait_us(self._clock.monotonic_us())]
        if most_us is not None:
            waits_us.append(most_us)
        next_us = self._claimer.next_us(is_ahead=is_ahead)
        if next_us is not None:
            waits_us.append(next_us - self._time.earliest_us())
        return max(min(waits_us), WAIT_US_MIN)
