"""Settles attempts beside the worker's loop, where each settlement is a transaction far away.

While one group of endings is stored, the loop claims the next jobs and handlers run.
"""

import threading
from collections.abc import Collection, Sequence
from typing import NamedTuple

from dueline.core.attempt import Ended
from dueline.core.clock import Clock
from dueline.core.job import Claim, Job
from dueline.core.store import Store
from dueline.worker.held_jobs import HeldJobs
from dueline.worker.settler import Settler


class Settlement(NamedTuple):
    """Attempts that are stored together.

    Attributes:
      ended: The attempts.
      started: Jobs whose handlers have started.
      cancelled: Claims on jobs that were cancelled.
      is_full: Whether all slots were taken when it began.
      began_us, took_us: By the monotonic clock.
      lost: The jobs whose claims were lost.
    """

    ended: Sequence[Ended]
    started: Sequence[Job]
    cancelled: Collection[Claim]
    is_full: bool
    began_us: int
    took_us: int = 0
    lost: Sequence[Job] = ()


class Settlements:
    """The settlements of one worker: one at a time, in a thread or at once.

    Args:
      store: The store.
      settler: Makes them.
      held: The worker's jobs.
      clock: The machine's clock.
      wakeup: Set when the thread has ended one.
      is_beside: Whether a thread makes them; None for that where each is a transaction far away.
    """

    def __init__(
        self,
        store: Store,
        settler: Settler,
        held: HeldJobs,
        clock: Clock,
        wakeup: threading.Event,
        *,
        is_beside: bool | None = None,
    ) -> None:
        if is_beside is None:
            is_beside = store.scope == "network" and store.transactional
        self._settler = settler
        self._held = held
        self._clock = clock
        self._wakeup = wakeup
        self._is_beside = is_beside
        self._change = threading.Condition()
        self._thread: threading.Thread | None = None
        self._given: Settlement | None = None
        self._done: Settlement | BaseException | None = None
        self._is_closing = False

    def begin(
        self,
        ended: Sequence[Ended],
        started: Sequence[Job],
        cancelled: Collection[Claim],
        *,
        is_full: bool,
    ) -> None:
        """Begin a settlement; none is under way, and the last one was taken."""
        began_us = self._clock.monotonic_us()
        settlement = Settlement(tuple(ended), started, cancelled, is_full, began_us)
        if not self._is_beside:
            self._done = self._made(settlement)
            return
        self._held.settling([each.job for each in ended])
        with self._change:
            self._given = settlement
            self._change.notify_all()
        if self._thread is None:
            self._thread = threading.Thread(target=self._loop, name="dueline-settle", daemon=True)
            self._thread.start()

    def is_under_way(self) -> bool:
        """Return whether a settlement is under way."""
        return self._given is not None

    def take(self) -> Settlement | None:
        """Drop the jobs of the settlement that has ended since the last call, and return it.

        Raises what made it fail; its jobs are held as before.
        """
        self._held.settling([])
        done, self._done = self._done, None
        if isinstance(done, BaseException):
            raise done
        if done is not None:
            self._held.marked.update([job.claim() for job in done.started])
            self._held.drop([attempt.job for attempt in done.ended])
        return done

    def wait(self) -> None:
        """Wait until none is under way."""
        with self._change:
            while self._given is not None:
                self._change.wait()

    def close(self) -> None:
        """End the thread, after the settlement that is under way."""
        with self._change:
            self._is_closing = True
            self._change.notify_all()
        if self._thread is not None:
            self._thread.join()

    def _loop(self) -> None:
        while (settlement := self._next()) is not None:
            done: Settlement | BaseException
            try:
                done = self._made(settlement)
            except BaseException as error:  # noqa: BLE001  (the worker's own thread raises it)
                done = error
            with self._change:
                self._done, self._given = done, None
                self._change.notify_all()
            self._wakeup.set()

    def _next(self) -> Settlement | None:
        with self._change:
            while self._given is None and not self._is_closing:
                self._change.wait()
            return self._given

    def _made(self, settlement: Settlement) -> Settlement:
        lost = self._settler.settle(settlement.ended, settlement.started, settlement.cancelled)
        took_us = self._clock.monotonic_us() - settlement.began_us
        return settlement._replace(lost=lost, took_us=took_us)
