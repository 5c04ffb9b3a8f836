"""Polls the lane lists when it is time to."""

from dueline.core.clock import SECOND_US
from dueline.core.engine import Engine
from dueline.core.wakeup import FALLBACK_US, GAP_US_MAX_WITHOUT_WAKEUPS, WakeupListener
from dueline.worker.backoff import PollTimer
from dueline.worker.claimer import Claimer
from dueline.worker.idle_turns import IdleTurns

WAIT_US_MIN = 20


class LaneListPoller:
    """Reads the lane lists at intervals, and at once when a wake-up asks for it.

    Where many workers take turns, the intervals are longer. Then a worker that is woken, or has
    waited for a job, polls before it claims: it claims by settings and lists of a few seconds ago.
    """

    def __init__(
        self,
        engine: Engine,
        claimer: Claimer,
        listener: WakeupListener,
        pace: PollTimer,
        turns: IdleTurns,
    ) -> None:
        self._claimer = claimer
        self._listener = listener
        self._pace = pace
        self._turns = turns
        self._time = engine.time
        self._clock = engine.clock
        self._is_pending = False  # a wake-up since the last poll named no lane
        self._has_heard = self._is_unannounced = False

    def poll(self) -> None:
        """Read the lane lists. If that fails, a poll is still due."""
        self._hear()  # wake-ups from here on may need another poll
        if self._is_pending:
            self._pace.notified()
            self._is_pending = False
        self._is_unannounced, self._has_heard = not self._has_heard, False
        began_us = self._clock.monotonic_us()
        self._claimer.refresh(self._pace.gap_us)
        asked = self._claimer.polls_us
        if any(asked):
            self._pace.gap_us_max = min(us or self._listener.gap_us_max for us in asked)
            self._pace.polled(began_us, self._clock.monotonic_us())
            return
        self._pace.polled(began_us, self._clock.monotonic_us())
        self._pace.gap_us_max = self._listener.gap_us_max
        if self._pace.gap_us >= FALLBACK_US:
            self._pace.gap_us_max = max(self._pace.gap_us_max, self._turns.gap_us())

    def poll_if_due(self) -> bool:
        """Poll if it is time to; return whether it was."""
        if not self._pace.is_due(self._clock.monotonic_us()):
            return False
        self.poll()
        return True

    def poll_if_due_or_notified(self) -> bool:
        """Poll before claiming, if it is time to or a wake-up asks for it."""
        self._hear()
        if self._is_pending:
            self._pace.notified_while_busy()
        return self.poll_if_due()

    def poll_if_notified(self) -> bool:
        """Poll if a wake-up asked for it, unless polls would take too much of the time.

        Wake-ups since the last call end the next wait. Returns whether it polled.
        """
        if not self._is_pending:
            return False
        self._pace.notified()
        return self.poll_if_due()

    def _hear(self) -> None:
        """Take wake-ups: learn the lanes that they name, or note that a poll is due."""
        wakeups = self._listener.take()
        if not wakeups:
            return
        places = [(wakeup.lane, wakeup.at_us) for wakeup in wakeups if wakeup.lane is not None]
        self._has_heard, self._is_unannounced = True, False
        is_stale = self._pace.is_stale(self._clock.monotonic_us())
        must_poll = self._is_pending or is_stale or len(places) < len(wakeups)
        self._is_pending = True  # also if the next call fails
        if must_poll:  # first: the poll reads whether a queue was just paused
            return
        for lane, at_us in places:
            self._claimer.learn(lane, at_us)
        self._is_pending = False

    def notify(self) -> None:
        """Poll as if a wake-up had asked for it."""
        self._is_pending = True

    def wait(self, timeout_us: int) -> None:
        """Wait for a wake-up, the worker's event or the timeout."""
        self._listener.wait(timeout_us / SECOND_US)

    def close(self) -> None:
        """Close the listener."""
        self._listener.close()

    def found(self) -> None:
        """Note that jobs were found."""
        if self._is_unannounced and self._pace.gap_us > GAP_US_MAX_WITHOUT_WAKEUPS:
            self._listener.missed()
        self._is_unannounced = False
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
