"""The jobs that a worker claims beyond its free slots, and when it releases them."""

from collections.abc import Callable
from typing import Final

from dueline.coordination.worker_registry import BEATS_A_LEASE
from dueline.core.claim_buffer import WAIT_US_MAX, buffer_size, is_room_worth_claiming
from dueline.core.job import Job
from dueline.core.store import Store
from dueline.worker.runner import Runner
from dueline.worker.start_marks import MarkedStarts

WORK_US: Final = 50_000
"""Work that the buffer holds where the store is on this machine."""

WORK_US_MAX: Final = 500_000
"""Maximum work that the buffer holds where the store is slow to answer."""

LINGER_US: Final = 100_000
"""On a store of the network, how long ended jobs wait for others that end, so that one request
stores them. They wait only while handlers have more to run.
"""

LINGER_SETTLES: Final = 2
"""Where one request stores any number of outcomes: how many settles they wait at most."""

FLUSH_US, FLUSH_US_FAR = 5_000, 25_000
"""How often a worker looks what to store while jobs wait for slots."""

ROUNDS: Final = 2
"""Rounds of claim and settle that the buffer outlasts: the next one, and one that takes longer."""

WAIT_SHARE: Final = 3
"""Where the buffer holds more work, a job waits at most this many times as long as that takes."""

KEPT: Final = 7 / 8
"""Part of the known duration that is kept when a new one is learnt."""


class RoundTrips:
    """How long a claim and a settle take on a store of the network; 0 on others."""

    def __init__(self, store: Store, lease_us: Callable[[], int]) -> None:
        """Know nothing yet. lease_us: returns the shortest lease of the jobs that are claimed."""
        self._lease_us = lease_us
        self.is_far = store.scope == "network"
        self._is_transactional = store.transactional
        self.claim_us = 0.0
        self.settle_us = 0.0

    def claimed(self, took_us: int) -> None:
        """Note the duration of a claim that found jobs."""
        if self.is_far:
            self.claim_us = _learnt(self.claim_us, took_us)

    def settled(self, took_us: int) -> None:
        """Note the duration of a settle."""
        if self.is_far:
            self.settle_us = _learnt(self.settle_us, took_us)

    def linger_us(self) -> int:
        """Return how long ended jobs wait for others."""
        if not self.is_far:
            return 0
        if not self._is_transactional:
            return LINGER_US
        return min(LINGER_SETTLES * int(self.settle_us), LINGER_US)

    def work_us(self) -> int:
        """Return how much work outlasts the next rounds, but needs no lease extended meanwhile."""
        if not self.is_far:
            return WORK_US
        rounds_us = ROUNDS * int(self.claim_us + self.settle_us)
        work_us = min(max(self.linger_us() + rounds_us, WORK_US), WORK_US_MAX)
        return max(0, min(work_us, self._lease_us() // BEATS_A_LEASE - rounds_us))


def _learnt(known_us: float, took_us: int) -> float:
    took_us = min(took_us, WORK_US_MAX)  # a store that stood still says nothing of the next round
    return KEPT * known_us + (1 - KEPT) * took_us if known_us else took_us


CHECK_EVERY_US: Final = 25_000


class Buffer:
    """How many jobs a worker holds, and which of them it releases (rule H1).

    A worker learns from ended jobs how many it can run in 50 ms, or in the time until its next
    claim on a store of the network, and holds that many beyond the running ones. If the next ones
    are slow, those that wait behind them are released for other workers. Until a handler has
    ended, only jobs that can start at once are claimed then.
    """

    def __init__(
        self,
        runner: Runner,
        careful: MarkedStarts,
        round_trips: RoundTrips,
        *,
        claims_ahead: bool = True,
    ) -> None:
        """Create a buffer; without `claims_ahead` it holds only jobs that can start at once."""
        self.round_trips = round_trips
        self._claims_ahead = claims_ahead
        self._ended_us: int | None = None
        self._runner = runner
        self._marked_starts = careful
        self._is_full = False
        self._checked_us = 0

    def most(self) -> int:
        """Return how many jobs may be held, including running ones."""
        more = 0
        if self._claims_ahead and not self._is_full:
            work_us = self.round_trips.work_us()
            more = buffer_size(self._runner.run_us, self._runner.threads, work_us=work_us)
        return self._runner.capacity + more

    def can_prefetch(self, free: int) -> bool:
        """Return whether enough slots are free to claim jobs that will soon be due."""
        is_busy = len(self._marked_starts) > 0 or self._marked_starts.needs_isolation()
        return self._claims_ahead and free >= max(1, self._runner.threads // 4) and not is_busy

    def wait_us_max(self) -> int:
        """Return how long a job may wait behind others."""
        return max(WAIT_US_MAX, WAIT_SHARE * self.round_trips.work_us())

    def is_worth_claiming(self, room: int) -> bool:
        """Return whether there is room for enough jobs, or nothing waits in the buffer."""
        return is_room_worth_claiming(
            room,
            self.most(),
            is_far=self.round_trips.is_far,
            has_waiting=bool(self._runner.waiting()),
        )

    def flush_us(self) -> int:
        """Return how often to look what to store while jobs wait for slots."""
        return FLUSH_US_FAR if self.round_trips.is_far else FLUSH_US

    def mark_every_us(self) -> int:
        """Return how often to record which handlers have started."""
        return max(self.round_trips.linger_us(), int(self.round_trips.settle_us), FLUSH_US)

    def lingers(self, now_us: int) -> bool:
        """Return whether ended jobs wait for others that will end soon."""
        if not (self.round_trips.is_far and self._runner.waiting()):
            self._ended_us = None
            return False
        if self._ended_us is None:
            self._ended_us = now_us
        if now_us - self._ended_us < self.round_trips.linger_us():
            return True
        self._ended_us = None
        return False

    def ended(self) -> None:
        """Note that a handler ended: the runner makes progress."""
        self._is_full = False

    def take_overdue(self, now_us: int) -> list[Job]:
        """Take back all jobs that wait for a slot, if one of them has waited too long."""
        if now_us - self._checked_us < CHECK_EVERY_US:
            return []
        self._checked_us = now_us
        waits_us = (self._runner.waiting_since_us(), self._marked_starts.waiting_since_us())
        since_us = min((wait_us for wait_us in waits_us if wait_us is not None), default=now_us)
        if now_us - since_us <= self.wait_us_max():
            return []
        self._is_full = True
        return [*self._marked_starts.take_waiting(), *self._runner.take_waiting()]
