"""A thread runner with one handler."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from dueline.core.clock import SECOND_US, Clock, SystemClock
from dueline.core.job import Job
from dueline.core.retry import Retry
from dueline.tasks.handler import Handler
from dueline.worker.execution import Execution
from dueline.worker.thread_runner import ThreadRunner, used_us
from tests.harness.calls import row_of
from tests.harness.crew import Crew as RunnerCrew

NAME = "tests.task"


class Crew(RunnerCrew):
    """A runner of one handler."""

    def __init__(
        self,
        function: Callable[..., object],
        threads: int,
        timeout_us: int | None,
        clock: Clock,
        processor_us: Callable[[], int],
    ) -> None:
        wakeup = threading.Event()
        handler = Handler(function, name=NAME, retry=Retry(), timeout_us=timeout_us)
        runner = ThreadRunner(
            Execution({NAME: handler}),
            threads=threads,
            clock=clock,
            now_us=lambda: clock.monotonic_us() + 5000 * SECOND_US,
            wakeup=wakeup,
            processor_us=processor_us,
        )
        super().__init__(runner, wakeup)

    def submit(self, *numbers: int, priority: int = 0) -> list[Job]:
        """Give it numbered jobs."""
        return self.give([row_of(number) for number in numbers], priority)


@contextmanager
def crew(
    function: Callable[..., object],
    *,
    threads: int = 1,
    timeout_us: int | None = None,
    clock: Clock | None = None,
    processor_us: Callable[[], int] = used_us,
) -> Iterator[Crew]:
    """Start a runner, and let its threads end."""
    made = Crew(function, threads, timeout_us, clock or SystemClock(), processor_us)
    made.runner.start()
    try:
        yield made
    finally:
        made.close()
