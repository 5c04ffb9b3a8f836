"""The threads in which maintenance runs beside a worker."""

import random
import threading
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self

from dueline.core.chore import Chore
from dueline.core.engine import Engine
from dueline.core.errors import DuelineError
from dueline.core.logging import log
from dueline.monitor.monitor import Monitor

FAILED_S = 2.0
"""How long to wait after the store could not be had, or a step failed."""


class Watch:
    """Takes the steps of the monitor and of schedules while a `with` lasts.

    Whatever fails in it is logged and tried again: no worker ends, or waits, because of it.
    """

    def __init__(
        self,
        engine: Engine,
        holder: str,
        *,
        check_schedules: Callable[[], int],
        tasks: Sequence[Chore],
        is_monitor: bool = True,
    ) -> None:
        """Take the engine, and the worker in whose name it acts.

        Args:
          check_schedules: Stores the jobs of schedules that are overdue, and returns after how
            many microseconds to do so again.
          tasks: What the monitor does.
          is_monitor: Whether it stands for election as the monitor. Schedules are checked in
            any case.
        """
        self._monitor: Monitor | None = None
        self._over = threading.Event()
        self._check = check_schedules
        self._threads = [self._thread("dueline-schedules", self.check_schedules)]
        if is_monitor:
            self._monitor = Monitor(
                engine,
                holder,
                clock=engine.clock,
                chance=random.random,
                chores=tasks,
                warn=log.warning,
            )
            self._threads.append(self._thread("dueline-monitor", self._step))

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()
        for thread in self._threads:
            thread.join()
        if self._monitor is not None:
            try:
                self._monitor.resign()
            except DuelineError as failure:
                log.info("the monitor's lease expires by itself: %s", failure)

    def stop(self) -> None:
        """End after the present steps. Any thread may call."""
        self._over.set()

    def _thread(self, name: str, step: Callable[[], float]) -> threading.Thread:
        def run() -> None:
            wait_s = 0.0
            while not self._over.wait(wait_s):
                wait_s = step()

        return threading.Thread(target=run, name=name, daemon=True)

    def _step(self) -> float:
        monitor = self._monitor
        assert monitor is not None
        before = monitor.epoch
        wait_s = _guarded(monitor.step, "the monitor")
        if monitor.epoch not in (None, before):
            log.info("this worker is the monitor, epoch %d", monitor.epoch)
        return wait_s

    def check_schedules(self) -> float:
        """Store the jobs of schedules that are overdue; return after how many s to do so again."""
        return _guarded(self._check, "a check of schedules")


def _guarded(step: Callable[[], int], what: str) -> float:
    """Take a step; return after how many seconds to take the next."""
    try:
        return step() / 1e6
    except DuelineError as error:
        log.warning("%s has to wait: %s", what, error)
    except Exception:  # noqa: BLE001  (a worker goes on without its maintenance)
        log.exception("a step of %s failed", what)
    return FAILED_S
