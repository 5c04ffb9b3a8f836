"""The maintenance threads of a worker."""

import random
import threading
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self

from dueline.core.engine import Engine
from dueline.core.errors import DuelineError
from dueline.core.logging import enable_loggers, log
from dueline.core.maintenance import MaintenanceTask
from dueline.monitor.monitor import Monitor

FAILED_S = 2.0
"""Wait in seconds after the store was unavailable, or a step failed."""


class MaintenanceThreads:
    """Runs the maintenance leader and checks schedules, in threads, while a `with` block lasts.

    All failures are logged and retried: no worker ends, or waits, because of them.

    Args:
        holder: The worker in whose name this acts.
        check_schedules: Stores the overdue jobs of schedules, and returns after how many
            microseconds to do so again.
        load_tasks: Returns the tasks of the leader; called if this becomes it.
        is_monitor: Whether this is a candidate for maintenance leader. Schedules are checked in
            any case.
    """

    def __init__(
        self,
        engine: Engine,
        holder: str,
        *,
        check_schedules: Callable[[], int],
        load_tasks: Callable[[], Sequence[MaintenanceTask]],
        is_monitor: bool = True,
    ) -> None:
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
                load_tasks=load_tasks,
                warn=log.warning,
            )
            self._threads.append(self._thread("dueline-monitor", self._step))

    def __enter__(self) -> Self:
        enable_loggers()
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
        """Stop after the current steps. Any thread may call this."""
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
            log.info("this worker is the maintenance leader, epoch %d", monitor.epoch)
        return wait_s

    def check_schedules(self) -> float:
        """Store the overdue jobs of schedules; return after how many seconds to do so again."""
        return _guarded(self._check, "a check of schedules")


def _guarded(step: Callable[[], int], what: str) -> float:
    """Run a step; return after how many seconds to run the next."""
    try:
        return step() / 1e6
    except DuelineError as error:
        log.warning("%s has to wait: %s", what, error)
    except Exception:  # noqa: BLE001  (a worker continues without maintenance)
        log.exception("a step of %s failed", what)
    return FAILED_S
