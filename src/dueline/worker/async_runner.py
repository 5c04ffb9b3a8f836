"""Runs coroutine handlers on one event loop."""

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Collection, Coroutine
from contextlib import suppress
from contextvars import Context as Variables
from functools import partial
from typing import Any, Final

from dueline.core.attempt import Cancelled, Ended, Ending, GivenBack
from dueline.core.clock import SECOND_US, Clock
from dueline.core.durations import span_text
from dueline.core.errors import JobTimeout
from dueline.core.job import Claim, Job
from dueline.core.logging import log
from dueline.core.text import one_line
from dueline.core.user_code import Raised, contain, log_raised
from dueline.worker.assignment import Assignment
from dueline.worker.context_controls import LEFT_RUNNING
from dueline.worker.execution import LOST_AFTER_US, Execution
from dueline.worker.interrupt import Interrupt
from dueline.worker.runner import LostSlot
from dueline.worker.safe_points import is_cleaning_up

CLEAN_UP_S = 1.0
"""How long the runner waits for its own loop after cancelling what runs in it."""

BLOCKED_US: Final = SECOND_US
"""A handler that keeps the loop for longer without an await is logged, in microseconds."""

LEFT_WAIT_US = 5 * SECOND_US
"""Delay of jobs that are released because their loop was closed by its owner."""


class _Run:
    """A job and its task on the loop."""

    __slots__ = (
        "again_us", "assignment", "attempt", "is_cancelled_again", "is_lost", "started_us", "task",
    )  # fmt: skip

    def __init__(self, assignment: Assignment) -> None:
        self.assignment = assignment
        self.task: asyncio.Task[None] | None = None
        self.attempt: Coroutine[Any, Any, Ending] | None = None
        self.started_us = 0
        self.again_us = 0  # when it is cancelled again
        self.is_cancelled_again = False  # and gets to know it next
        self.is_lost = False


class CoroutineRunner:
    """Runs the coroutine handlers of a worker concurrently on one event loop.

    The loop is its own, in a thread, or one that runs already. The caller counts the jobs: the
    runner does not limit them.

    Args:
      execution: Runs a handler.
      clock: The machine's clock.
      ended: Called on the loop for each attempt that ended, with monotonic times.
      loop: A loop of a thread other than the worker's; None for one of its own.
    """

    def __init__(
        self,
        execution: Execution,
        *,
        clock: Clock,
        ended: Callable[[Ended], object],
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
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
        self._blocking: set[str] = set()  # tasks that were logged for it
        self.offset_us = 0

    def __len__(self) -> int:
        """Count the jobs that run."""
        return len(self._runs)

    def start(self) -> None:
        """Start the loop, if it is the runner's own."""
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

        SystemExit and KeyboardInterrupt of a task that a handler started, or of a callback, come
        out of the loop. The loop is intact then, and continues for all other handlers.
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
        """Start a job; callable from any thread."""
        run = _Run(assignment)
        self._runs[id(run)] = run
        self._coming.append(run)
        if not self._is_called:
            self._is_called = True  # one call wakes the loop for all that come meanwhile
            self._call(self._begin_all)

    def _call(self, function: Callable[[], object]) -> None:
        """Call a function on the loop, unless the loop is closed."""
        assert self._loop is not None, "it was not started"
        with suppress(RuntimeError):  # closed: see `cancel_overdue`
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
        run.attempt = attempt
        ending: Ending
        try:
            ending = await _Steps(attempt, run, self)
        except BaseException as error:  # noqa: BLE001  (a time limit that came late; or a fault)
            ending = self._execution.failed_outside(error, run.assignment.job)
        self._over(run, ending, self._clock.monotonic_us())

    def enter(self, run: _Run) -> int:
        """Note that the loop is inside a handler; return the time."""
        self._interrupt.enter(run)
        if run.is_cancelled_again:
            run.is_cancelled_again = False
            package = self._execution.package_of(run.assignment.job)
            self._interrupt.expect(JobTimeout, package, run.attempt)
        return self._clock.monotonic_us()

    def leave(self, run: _Run, entered_us: int) -> None:
        """Note that a handler awaits; log a task that blocked the loop before, once."""
        self._interrupt.leave()
        took_us = self._clock.monotonic_us() - entered_us
        job = run.assignment.job
        if took_us > BLOCKED_US and job.task not in self._blocking:
            self._blocking.add(job.task)
            log.warning(
                "job=%s task=%s blocked the event loop for %.1f s, so other coroutines waited: "
                "use await instead of calls that wait, or asyncio.to_thread",
                job.id.hex(), one_line(job.task), took_us / SECOND_US,
            )  # fmt: skip

    def _over(self, run: _Run, ending: Ending, now_us: int) -> None:
        if self._runs.pop(id(run), None) is not None:
            started_us = 0 if type(ending) is GivenBack else run.started_us
            self._ended(Ended(run.assignment.job, ending, started_us, now_us))

    def jobs(self) -> list[Job]:
        """Return the jobs, those of a batch each by itself."""
        taken = [run.assignment for run in list(self._runs.values())]
        return [part.job for assignment in taken for part in assignment.chunk or (assignment,)]

    def running(self) -> list[Job]:
        """Return the jobs whose handlers run now."""
        return [run.assignment.job for run in list(self._runs.values()) if run.started_us]

    def cancel_overdue(self) -> None:
        """Raise JobTimeout in a handler that blocks the loop beyond its time limit.

        While handlers await, the loop enforces limits itself: see `Execution.arun`. Those that
        caught the cancellation and go on are cancelled again. Jobs that were left by a loop that
        its owner closed are released.
        """
        now_us = self._clock.monotonic_us()
        if self._loop is not None and self._loop.is_closed():
            for left in list(self._runs.values()):
                self._over(left, GivenBack(LEFT_WAIT_US), now_us)
        for run in list(self._runs.values()):
            job = run.assignment.job
            limit_us = self._execution.timeout_us(job) if run.started_us else None
            if limit_us is None or now_us - run.started_us < limit_us:
                continue
            self._execution.controls.expire(run.assignment)
            if self._interrupt.inside is run:
                self._interrupt.send(run, JobTimeout, self._execution.package_of(job))
            elif now_us >= run.again_us:
                run.again_us = now_us + SECOND_US
                self._call(partial(self._cancel_again, run))
            if now_us - run.started_us >= limit_us + LOST_AFTER_US and not run.is_lost:
                run.is_lost = True
                log.warning(
                    "job=%s task=%s has outlived its limit of %s; its slot is lost until it ends",
                    job.id.hex(), job.task, span_text(self._execution.limit_us(job) or 0),
                )  # fmt: skip

    def _cancel_again(self, run: _Run) -> None:
        """Cancel a coroutine that caught a cancellation, unless it cleans up.

        If it catches this one too, its next loop raises JobTimeout.
        """
        if id(run) in self._runs and run.task is not None and not is_cleaning_up(run.attempt):
            run.is_cancelled_again = True
            run.task.cancel()

    def lost(self) -> list[LostSlot]:
        """Return the slots whose handlers have outlived their limits."""
        return [
            LostSlot(
                run.assignment.job,
                run.started_us
                + (self._execution.limit_us(run.assignment.job) or 0)
                + self.offset_us,
            )
            for run in list(self._runs.values())
            if run.is_lost
        ]

    def stop_by_force(self, claims: Collection[Claim]) -> None:
        """End running jobs as cancelled, whatever their coroutines do with the cancellation."""
        now_us = self._clock.monotonic_us()
        for run in list(self._runs.values()):
            assignment = run.assignment
            for part in assignment.chunk or (assignment,):
                if part.job.claim() in claims:
                    ending = Cancelled(LEFT_RUNNING)
                    self._ended(Ended(part.job, ending, run.started_us, now_us))

    def close(self) -> None:
        """Cancel what still runs, and end the loop if it is the runner's own."""
        runs = list(self._runs.values())
        self._runs.clear()  # their endings are not collected
        self._call(lambda: [run.task.cancel() for run in runs if run.task is not None])
        if self._thread is not None and self._loop is not None:
            self._is_stopping = True
            self._call(self._loop.stop)
            self._thread.join(CLEAN_UP_S)


class _Steps:
    """Awaits a coroutine step by step, and marks when the loop is inside it."""

    def __init__(
        self, coroutine: Coroutine[Any, Any, Ending], run: _Run, runner: CoroutineRunner
    ) -> None:
        self._coroutine = coroutine
        self._run = run
        self._runner = runner

    def __await__(self) -> "_Steps":
        # Not a generator of its own: what is raised between two steps must find none half done.
        return self

    def __iter__(self) -> "_Steps":
        return self

    def __next__(self) -> Any:  # noqa: ANN401  (whatever the loop awaits)
        return self.send(None)

    def send(self, value: Any) -> Any:  # noqa: ANN401
        entered_us = self._runner.enter(self._run)
        try:
            return self._coroutine.send(value)
        finally:
            self._runner.leave(self._run, entered_us)

    def throw(self, *error: Any) -> Any:  # noqa: ANN401
        entered_us = self._runner.enter(self._run)
        try:
            return self._coroutine.throw(*error)
        finally:
            self._runner.leave(self._run, entered_us)

    def close(self) -> None:
        self._coroutine.close()
