"""A runner in threads, and a way to wait for what it says."""

import threading
import time
from collections.abc import Callable, Sequence

from dueline.core.attempt import Ended
from dueline.core.job import Job
from dueline.worker.assignment import Assignment
from dueline.worker.thread_runner import ThreadRunner

WAIT_S = 60


class Crew:
    """Does for a runner what a worker does."""

    def __init__(self, runner: ThreadRunner, wakeup: threading.Event) -> None:
        """Take a runner, and the event that it sets."""
        self.runner = runner
        self.wakeup = wakeup
        self.ended: list[Ended] = []

    def give(self, rows: Sequence[Job], priority: int) -> list[Job]:
        """Give it jobs, whose results are wanted."""
        jobs = [row._replace(lane=row.lane._replace(priority=priority)) for row in rows]
        self.runner.submit([Assignment(job, keep=True) for job in jobs])
        return jobs

    def wait(self, is_so: Callable[[], bool], *, spreads: bool = True) -> None:
        """Wait until something is so, woken by the runner's wakeup event.

        Args: spreads: whether more threads are woken, as a worker does each time it looks.
        """
        give_up_s = time.monotonic() + WAIT_S
        while not is_so():
            assert time.monotonic() < give_up_s, f"it never came to be; ended: {self.ended}"
            self.wakeup.wait(0.01)
            self.wakeup.clear()
            if spreads:
                self.runner.spread()
            self.runner.interrupt_overdue()
            self.ended += self.runner.collect()

    def take(self, count: int) -> list[Ended]:
        """Wait for so many ends, and take them."""
        self.wait(lambda: len(self.ended) >= count)
        taken, self.ended = self.ended[:count], self.ended[count:]
        return taken

    def close(self) -> None:
        """Let all its threads end, and see that they do."""
        self.runner.close()
        threads = [slot.thread for slot in self.runner._slots]
        coroutines = self.runner._coroutines
        if coroutines is not None and coroutines._thread is not None:
            threads.append(coroutines._thread)
        for thread in threads:
            thread.join(WAIT_S)
            assert not thread.is_alive()
