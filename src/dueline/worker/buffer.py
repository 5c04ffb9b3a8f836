"""The jobs that a worker claims beyond its free slots, and when it releases them."""

from typing import Final

from dueline.core.job import Job
from dueline.core.retry import buffer_size
from dueline.worker.runner import Runner
from dueline.worker.start_marks import MarkedStarts

WAIT_US_MAX: Final = 250_000
"""Maximum time that a claimed job waits behind others in one worker: five times what the buffer is
meant to hold, so that a machine that is slow for a moment releases nothing.
"""

CHECK_EVERY_US: Final = 25_000


class Buffer:
    """How many jobs a worker holds, and which of them it releases (rule H1).

    A worker learns from ended jobs how many it can run in 50 ms, and holds that many beyond the
    running ones. If the next ones are slow, those that wait behind them are released for other
    workers. Until a handler has ended, only jobs that can start at once are claimed then.
    """

    def __init__(self, runner: Runner, careful: MarkedStarts) -> None:
        self._runner = runner
        self._marked_starts = careful
        self._is_full = False
        self._checked_us = 0

    def most(self) -> int:
        """Return how many jobs may be held, including running ones."""
        more = 0 if self._is_full else buffer_size(self._runner.run_us, self._runner.threads)
        return self._runner.capacity + more

    def ended(self) -> None:
        """Note that a handler ended: the runner makes progress."""
        self._is_full = False

    def take_overdue(self, now_us: int) -> list[Job]:
        """Take back all jobs that wait for a slot, if one of them has waited too long."""
        if now_us - self._checked_us < CHECK_EVERY_US:
            return []
        self._checked_us = now_us
        waits_us = (self._runner.waiting_since_us(), self._marked_starts.waiting_since_us())
        since_us = min((one for one in waits_us if one is not None), default=now_us)
        if now_us - since_us <= WAIT_US_MAX:
            return []
        self._is_full = True
        return [*self._marked_starts.take_waiting(), *self._runner.take_waiting()]
