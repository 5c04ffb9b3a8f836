"""A worker's child process: runs handlers, and stores nothing."""

import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection

from dueline.core.attempt import Ending, GivenBack
from dueline.core.clock import SystemClock
from dueline.core.job import Claim
from dueline.tasks.handler import Handler
from dueline.tasks.hooks import Hooks
from dueline.worker.assignment import Assignment
from dueline.worker.child_protocol import (
    CancelAsked,
    Extended,
    Finished,
    Leave,
    Lost,
    Message,
    Progressed,
    Ready,
    Recall,
    Returned,
    Run,
    Started,
    dump,
    load,
)
from dueline.worker.execution import Execution
from dueline.worker.thread_runner import ThreadRunner

_TICK_S = 0.05

REPORT_EVERY_US = 200_000
"""Minimum time between two progress reports to the parent."""


class Child:
    """The child's side of a worker's pipe. It exits when the pipe closes, since its parent is gone.

    Args:
      pipe: The pipe to the parent.
      handlers: The handlers by task.
      threads: Number of handlers that run at the same time.
      hooks: The application's hooks.
      make_runner: Creates the runner.
      is_remote: The parent's monotonic clock belongs to another machine.
    """

    def __init__(
        self,
        pipe: Connection,
        handlers: dict[str, Handler],
        threads: int,
        hooks: Hooks,
        make_runner: Callable[..., ThreadRunner] = ThreadRunner,
        *,
        is_remote: bool = False,
    ) -> None:
        self._pipe = pipe
        self._is_remote = is_remote
        self._sending = threading.Lock()
        self._collecting = threading.Lock()
        self._clock = SystemClock()
        self._offset_us = 0
        self._reported_us = 0
        self._is_leaving = False
        self._wakeup = threading.Event()
        self._runner = make_runner(
            _ReportingExecution(handlers, hooks, self._report_start),
            threads=threads,
            clock=self._clock,
            now_us=self._now_us,
            wakeup=self._wakeup,
        )

    def run(self) -> None:
        """Serve until the parent has no more work. If the parent closes the pipe, exit."""
        self._runner.start()
        reporting = threading.Thread(target=self._report, name="dueline-report", daemon=True)
        reporting.start()
        self._send(Ready())
        while True:
            try:
                message = load(self._pipe.recv_bytes())
            except (EOFError, OSError):
                # Without a parent no lease is extended: stop running handlers at once.
                os._exit(0)
            if isinstance(message, Leave):
                break
            if isinstance(message, Run):
                self._offset_us = message.offset_us
                if self._is_remote:
                    self._offset_us = message.now_us - self._clock.monotonic_us()
                self._runner.submit(message.assignments)
            elif isinstance(message, Extended):
                self._runner.extend_more(message.until_us)
            elif isinstance(message, Lost):
                self._runner.forget(message.claims)
            elif isinstance(message, CancelAsked):
                self._runner.cancel(message.claims)
            elif isinstance(message, Recall):
                self._send(Returned([job.claim() for job in self._runner.take_back()]))
        self._is_leaving = True
        self._wakeup.set()
        reporting.join()
        self._runner.close()

    def _now_us(self) -> int:
        return self._clock.monotonic_us() + self._offset_us

    def _report_start(self, claim: Claim) -> None:
        """Report that a handler is about to be called, after what ended before it.

        If the process dies in it, the parent knows which handlers ran.
        """
        self._report_endings()
        self._send(Started(claim, self._now_us()))

    def _report(self) -> None:
        while not self._is_leaving:
            self._wakeup.wait(_TICK_S)
            self._wakeup.clear()
            self._report_endings()
            self._runner.interrupt_overdue()
            self._runner.spread()

    def _report_endings(self) -> None:
        with self._collecting:
            all_ended = self._runner.collect()
            self._report_progress(at_once=bool(all_ended))
            for ended in all_ended:
                claim = ended.job.claim()
                self._send(Finished(claim, ended.ending, ended.started_us, ended.ended_us))

    def _report_progress(self, *, at_once: bool) -> None:
        """Forward progress reports, before the endings of their handlers."""
        now_us = self._clock.monotonic_us()
        if at_once or now_us - self._reported_us > REPORT_EVERY_US:
            self._reported_us = now_us
            for claim, report in self._runner.reports().items():
                self._send(Progressed(claim, report))

    def _send(self, message: Message) -> None:
        try:
            with self._sending:
                self._pipe.send_bytes(dump(message))
        except OSError:
            os._exit(0)


class _ReportingExecution(Execution):
    """Reports each start first: if the process dies in a handler, its job is a suspect."""

    def __init__(
        self, handlers: Mapping[str, Handler], hooks: Hooks, report: Callable[[Claim], None]
    ) -> None:
        super().__init__(handlers, hooks)
        self._report = report

    def run_plainly(self, assignment: Assignment, now_us: int) -> None:
        """Skip the fast path, which reports no start."""
        del assignment, now_us

    def begin(self, assignment: Assignment, now_us: int) -> Ending | None:
        if self.controls.has_expired(assignment, now_us):
            return GivenBack()
        self._report(assignment.job.claim())
        return super().begin(assignment, now_us)

    def begin_batch(self, assignment: Assignment) -> None:
        self._report(assignment.job.claim())


def serve(descriptor: int, handlers: dict[str, Handler], threads: int, hooks: Hooks) -> None:
    """Run a child process. The parent handles signals; the child ends when its pipe closes."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    sys.stdin.close()
    Child(Connection(descriptor), handlers, threads, hooks).run()
    os._exit(0)
