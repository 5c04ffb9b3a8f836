"""A thread in which the monitor's chores are done."""

import random
import threading
from types import TracebackType
from typing import Self

from dueline.clock import Clock
from dueline.errors import DuelineError
from dueline.monitor import Monitor
from dueline.queue import Queues
from dueline.worker.log import log

FAILED_S = 2.0
"""How long to wait after the store could not be had, or a chore failed."""


class Watch:
    """Stands for the office of the monitor for as long as a `with` lasts.

    Whatever fails in it is logged and tried again: no worker ends, or waits, because of a chore.
    """

    def __init__(self, queues: Queues, holder: str, *, clock: Clock) -> None:
        """Take the engine, and the worker in whose name it stands."""
        self._monitor = Monitor(queues, holder, clock=clock, chance=random.random, warn=log.warning)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self.run, name="dueline-monitor", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()
        self._thread.join()

    def stop(self) -> None:
        """End after the present step. Any thread may call."""
        self._over.set()

    def run(self) -> None:
        """Do what there is to do, until stopped; then give the office back."""
        wait_s = 0.0
        while not self._over.wait(wait_s):
            wait_s = self._step()
        try:
            self._monitor.resign()
        except DuelineError as error:
            log.info("the monitor's office lapses by itself: %s", error)

    def _step(self) -> float:
        before = self._monitor.epoch
        try:
            wait_s = self._monitor.step() / 1e6
        except DuelineError as error:
            log.warning("the monitor has to wait: %s", error)
            return FAILED_S
        except Exception:  # noqa: BLE001  (a worker goes on without its chores)
            log.exception("a chore of the monitor failed")
            return FAILED_S
        if self._monitor.epoch not in (None, before):
            log.info("this worker is the monitor, epoch %d", self._monitor.epoch)
        return wait_s
