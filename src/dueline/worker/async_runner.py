"""Coroutine handlers on one event loop."""

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from contextvars import Context as Variables
from typing import Any

from dueline.core.attempt import Ended, Ending, GivenBack
from dueline.core.clock import SECOND_US, Clock
from dueline.core.job import Job
from dueline.core.logging import log
from dueline.core.user_code import Raised, contain, log_raised
from dueline.worker.assignment import Assignment
from dueline.worker.execution import Execution
from dueline.worker.interrupt import Interrupt

CLEAN_UP_S = 1.0
"""How long a loop of our own is waited for, once what runs in it was cancelled."""

LEFT_WAIT_US = 5 * SECOND_US
"""How long jobs wait for another worker whose loop was closed under this one."""


class _Run:
    """A job and the task that it is on the loop."""

    __slots__ = ("assignment", "interrupted", "started_us", "task")

    def __init__(self, assignment: Assignment) -> None:
        self.assignment = assignment
        self.task: asyncio.Task[None] | None = None
        self.started_us = 0
        self.interrupted = False


class CoroutineRunner:
    """Runs the coroutine handlers of a worker beside each other, on one event loop.

    The loop is its own, in a thread, or one that runs already. Whoever gives it jobs counts
    them: any number runs at once.
    """

    def __init__(
        self,
        execution: Execution,
        *,
        clock: Clock,
        ended: Callable[[Ended], object],
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        """Take what to run jobs with; starts nothing yet.

        Args: ended: called on the loop for each attempt that is over, with monotonic times.
        loop: one that runs in another thread than the worker's; None for one of our own.
        """
        self._execution = execution
        self._clock = clock
        self._ended = ended
        self._given = loop
        self._loop = loop
        self._thread: threading.Thread | None = None
        self._is_stopping = False
        self._coming: deque[_Run] = deque()
        self._is_called = False
        self._runs: dict[int, _Run] = {}
        self._interrupt = Interrupt()
        self.offset_us = 0

    def __len__(self) -> int:
        """Count the jobs that were begun and are not over."""
        return len(self._runs)

    def start(self) -> None:
        """Start the loop, if it is our own."""
        if self._given is not None:
            return
        is_ready = threading.Event()
        self._thread = threading.Thread(
            target=self._serve, args=(is_ready,), name="dueline-loop", daemon=True
        )
        self._thread.start()
        is_ready.wait()

    def _serve(self, is_ready: threading.Event) -> None:
        """Run the loop until it is stopped.

        SystemExit and KeyboardInterrupt of a task that a handler started beside itself, or of a
        callback, come out of the loop. It is sound then, and goes on for all other handlers.
        """
        runner = asyncio.Runner()
        self._loop = loop = runner.get_loop()
        is_ready.set()
        while not self._is_stopping:
            raised = contain(loop.run_forever)
            if isinstance(raised, Raised):
                log_raised(log, raised, "a task or callback beside a handler ended")
        contain(runner.close)  # cancels what still runs

    def begin(self, assignment: Assignment) -> None:
        """Run a job from now on; any thread may call."""
        run = _Run(assignment)
        self._runs[id(run)] = run
        self._coming.append(run)
        if not self._is_called:
            self._is_called = True  # one call wakes the loop for all that come meanwhile
            self._call(self._begin_all)

    def _call(self, function: Callable[[], object]) -> None:
        """Have something called on the loop, if there is one still."""
        assert self._loop is not None, "it was not started"
        with suppress(RuntimeError):  # closed: see `look_after`
            self._loop.call_soon_threadsafe(function)

    def _begin_all(self) -> None:
        self._is_called = False
        while self._coming:
            run = self._coming.popleft()
            run.started_us = self._clock.monotonic_us()
            # Context variables start empty, as in a thread, and end with the job.
            run.task = asyncio.get_running_loop().create_task(self._run(run), context=Variables())

    async def _run(self, run: _Run) -> None:
        attempt = self._execution.arun(run.assignment, run.started_us + self.offset_us)
        ending: Ending
        try:
            if self._execution.timeout_us(run.assignment.job) is None:
                ending = await attempt
            else:
                ending = await _Steps(attempt, run, self._interrupt)
        except BaseException as error:  # noqa: BLE001  (a time limit that came late; or a fault)
            ending = self._execution.failed_outside(error, run.assignment.job)
        self._over(run, ending, self._clock.monotonic_us())

    def _over(self, run: _Run, ending: Ending, now_us: int) -> None:
        if self._runs.pop(id(run), None) is not None:
            started_us = 0 if type(ending) is GivenBack else run.started_us
            self._ended(Ended(run.assignment.job, ending, started_us, now_us))

    def running(self) -> list[Job]:
        """List the jobs whose handlers run now."""
        return [run.assignment.job for run in list(self._runs.values()) if run.started_us]

    def cancel_overdue(self) -> None:
        """Raise JobTimeout in a handler that keeps the loop from cancelling it at its limit.

        A limit is the loop's own business while handlers await: see `Execution.arun`. Jobs that
        were left by a loop that its owner closed are given back.
        """
        now_us = self._clock.monotonic_us()
        if self._loop is not None and self._loop.is_closed():
            for left in list(self._runs.values()):
                self._over(left, GivenBack(LEFT_WAIT_US), now_us)
        run = self._interrupt.inside
        if isinstance(run, _Run) and not run.interrupted:
            limit_us = self._execution.timeout_us(run.assignment.job)
            if limit_us is not None and now_us - run.started_us >= limit_us:
                run.interrupted = self._interrupt.send(run)

    def close(self) -> None:
        """Cancel what still runs, and end the loop if it is our own."""
        runs = list(self._runs.values())
        self._runs.clear()  # nobody waits for how they end
        self._coming.clear()
        self._call(lambda: [run.task.cancel() for run in runs if run.task is not None])
        if self._thread is not None and self._loop is not None:
            self._is_stopping = True
            self._call(self._loop.stop)
            self._thread.join(CLEAN_UP_S)


class _Steps:
    """Awaits a coroutine step by step, and says when the loop is inside of it."""

    def __init__(
        self, coroutine: Coroutine[Any, Any, Ending], run: _Run, interrupt: Interrupt
    ) -> None:
        self._coroutine = coroutine
        self._run = run
        self._interrupt = interrupt

    def __await__(self) -> "_Steps":
        # Not a generator of its own: what is raised between two steps must find none half done.
        return self

    def __iter__(self) -> "_Steps":
        return self

    def __next__(self) -> Any:  # noqa: ANN401  (whatever the loop awaits)
        return self.send(None)

    def send(self, value: Any) -> Any:  # noqa: ANN401
        self._interrupt.enter(self._run)
        try:
            return self._coroutine.send(value)
        finally:
            self._interrupt.leave()

    def throw(self, *error: Any) -> Any:  # noqa: ANN401
        self._interrupt.enter(self._run)
        try:
            return self._coroutine.throw(*error)
        finally:
            self._interrupt.leave()

    def close(self) -> None:
        self._coroutine.close()
