"""A worker's child process: runs handlers, and stores nothing."""

import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from types import FrameType

from dueline.core.attempt import Ending, GivenBack
from dueline.core.clock import SECOND_US, Clock, SystemClock
from dueline.core.job import Job, JobId
from dueline.core.logging import enable_loggers
from dueline.core.process_signals import set_handlers, signals_to_stop
from dueline.core.system import at_fork
from dueline.tasks.handler import Handler
from dueline.tasks.hooks import Hooks
from dueline.worker.assignment import Assignment
from dueline.worker.child_board import ENDING_BYTES_MAX, Board
from dueline.worker.child_protocol import (
    CancelAsked,
    Emission,
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
    Written,
    dump,
    dump_ending,
    load,
)
from dueline.worker.execution import Execution
from dueline.worker.thread_runner import NOTIFY_EVERY_US, ThreadRunner

_TICK_S = 0.05

_GROUP_S = NOTIFY_EVERY_US / SECOND_US
"""How long an ending waits for others at most."""

REPORT_EVERY_US = 200_000
"""Minimum time between two progress reports to the parent."""

EMIT_EVERY_US = 50_000
"""Minimum time between two messages to the parent with chunks that handlers emitted."""


class Child:
    """The child's side of a worker's pipe. It exits when the pipe closes, since its parent is gone.

    Args:
      pipe: The pipe to the parent.
      handlers: The handlers by task.
      threads: Number of handlers that run at the same time.
      hooks: The application's hooks.
      make_runner: Creates the runner.
      board: The memory shared with the parent; None if that is on another machine, and its
        monotonic clock another one. Then starts and endings are sent one by one.
    """

    def __init__(
        self,
        pipe: Connection,
        handlers: dict[str, Handler],
        threads: int,
        hooks: Hooks,
        make_runner: Callable[..., ThreadRunner] = ThreadRunner,
        *,
        board: Board | None = None,
    ) -> None:
        self._pipe = pipe
        self._sending = threading.Lock()
        self._collecting = threading.Lock()
        self._clock = SystemClock()
        self._offset_us = 0
        self._reported_us = self._emitted_us = 0
        self._is_leaving = False
        self._wakeup = threading.Event()
        execution: Execution = _ReportingExecution(handlers, hooks, self._report_start)
        self._notes: _Notes | None = None
        if board is not None:
            self._notes = _Notes(board, self._clock, self._send, self._forward_chunks)
            execution = _NotingExecution(handlers, hooks, self._notes)
        self._emitting = threading.Lock()
        self._chunks = execution.controls.chunks
        self._runner = make_runner(
            execution,
            threads=threads,
            clock=self._clock,
            now_us=self._now_us,
            wakeup=self._wakeup,
            **({} if self._notes is None else {"ended": self._notes}),
        )

    def run(self) -> None:
        """Serve until the parent has no more work. If the parent closes the pipe, exit."""
        enable_loggers()
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
                if self._notes is None:
                    self._offset_us = message.now_us - self._clock.monotonic_us()
                else:
                    self._notes.add(message)
                self._runner.submit(message.assignments)
            elif isinstance(message, Extended):
                self._runner.extend_more(message.until_us)
            elif isinstance(message, Lost):
                back = self._runner.withdraw(message.claims)
                self._runner.forget(message.claims)
                self._send(Returned([job.claim() for job in back]))
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

    def _report_start(self, job: Job) -> None:
        """Report that a handler is about to be called, after what ended before it.

        If the process dies in it, the parent knows which handlers ran.
        """
        self._report_endings()
        self._send(Started(job.claim(), self._now_us()))

    def _report(self) -> None:
        while not self._is_leaving:
            self._wakeup.wait(_GROUP_S if self._runner.load() else _TICK_S)
            self._wakeup.clear()
            self._report_endings()
            self._runner.interrupt_overdue()
            self._runner.spread()

    def _report_endings(self) -> None:
        with self._collecting:
            cells = [] if self._notes is None else self._notes.take()
            all_ended = self._runner.collect()
            self._report_progress(at_once=bool(all_ended))
            if self._chunks:
                now_us = self._clock.monotonic_us()
                if all_ended or now_us - self._emitted_us > EMIT_EVERY_US:
                    self._emitted_us = now_us
                    self._forward_chunks()
            if cells:
                self._send(Written(cells))
            elif self._notes is None:
                for job, ending, *times in all_ended:
                    self._send(Finished(job.claim(), ending, *times))

    def _report_progress(self, *, at_once: bool) -> None:
        """Forward progress reports, before the endings of their handlers."""
        now_us = self._clock.monotonic_us()
        if at_once or now_us - self._reported_us > REPORT_EVERY_US:
            self._reported_us = now_us
            for claim, report in self._runner.reports().items():
                self._send(Progressed(claim, report))

    def _forward_chunks(self) -> None:
        """Forward the chunks of handlers, before the endings of these."""
        if self._chunks:
            with self._emitting:  # those of a claim in their order
                self._send(Emission(self._chunks.take()))

    def _send(self, message: Message) -> None:
        try:
            with self._sending:
                self._pipe.send_bytes(dump(message))
        except OSError:
            os._exit(0)


class _Notes(deque[tuple[Job, Ending, int, int]]):
    """Notes on the board: when handlers are called, and how jobs end as the runner appends that."""

    def __init__(
        self,
        board: Board,
        clock: Clock,
        send: Callable[[Message], None],
        forward_chunks: Callable[[], None],
    ) -> None:
        super().__init__()
        self._forward_chunks = forward_chunks
        self._board = board
        self._clock = clock
        self._send = send
        self._cells: dict[tuple[JobId, int], int] = {}
        self._over: deque[int] = deque()

    def add(self, run: Run) -> None:
        """Take the cells of jobs that the runner will get."""
        claims = [assignment.job.claim() for assignment in run.assignments]
        self._cells.update(zip(claims, run.cells, strict=True))

    def start(self, job: Job) -> None:
        """Note that a handler is about to be called; the jobs of a batch have one cell."""
        cell = self._cells.get((job.id, job.fence))
        if cell is not None:
            self._board.start(cell, self._clock.monotonic_us())

    def take_back(self, job: Job) -> None:
        """Note that it was not called after all."""
        self._board.start(self._cells[job.id, job.fence], 0)

    def append(self, ended: tuple[Job, Ending, int, int]) -> None:
        """Note how a job ended, before others can take that."""
        job, ending, started_us, ended_us = ended
        self._forward_chunks()
        cell = self._cells.pop((job.id, job.fence))
        data = dump_ending(ending, started_us, ended_us)
        if len(data) > ENDING_BYTES_MAX:
            self._send(Finished(job.claim(), ending, started_us, ended_us))
            data = b""
        self._board.end(cell, data)
        super().append(ended)
        self._over.append(cell)

    def take(self) -> list[int]:
        """Return the cells of jobs that have ended since the last call."""
        take = self._over.popleft
        return [take() for _ in range(len(self._over))]  # this thread alone takes


class _ReportingExecution(Execution):
    """Reports each call first: if the process dies in a handler, its job is a suspect."""

    def __init__(
        self, handlers: Mapping[str, Handler], hooks: Hooks, report: Callable[[Job], None]
    ) -> None:
        super().__init__(handlers, hooks)
        self._report = report

    def run_plainly(self, assignment: Assignment, now_us: int) -> Ending | None:
        """Skip the fast path, which reports no start."""
        del assignment, now_us
        return None

    def begin(self, assignment: Assignment, now_us: int) -> Ending | None:
        if self.controls.has_expired(assignment, now_us):
            return GivenBack()
        self._report(assignment.job)
        return super().begin(assignment, now_us)

    def begin_batch(self, assignment: Assignment) -> None:
        self._report(assignment.job)


class _NotingExecution(_ReportingExecution):
    """Notes each call on the board first, which the fast path can afford."""

    def __init__(self, handlers: Mapping[str, Handler], hooks: Hooks, notes: _Notes) -> None:
        super().__init__(handlers, hooks, notes.start)
        self._notes = notes

    def run_plainly(self, assignment: Assignment, now_us: int) -> Ending | None:
        self._notes.start(assignment.job)
        ending = Execution.run_plainly(self, assignment, now_us)
        if ending is None:
            self._notes.take_back(assignment.job)
        return ending


def serve(pipe: int, board: int, handlers: dict[str, Handler], threads: int, hooks: Hooks) -> None:
    """Run a child process. The parent handles signals; the child ends when its pipe closes."""
    set_handlers(signals_to_stop(), _leave_to_parent)
    for number in signals_to_stop():
        signal.siginterrupt(number, False)  # noqa: FBT003  (no keyword is accepted)
    for descriptor in (pipe, board):
        os.set_inheritable(descriptor, False)  # noqa: FBT003  (no keyword is accepted)
    connection = Connection(pipe)
    at_fork(after_in_child=connection.close)  # an open one would hide the end of this process
    Child(connection, handlers, threads, hooks, board=Board(board)).run()
    os._exit(0)


def _leave_to_parent(_number: int, _frame: FrameType | None) -> None:
    """Do nothing: the parent gets the signal, too, and ends this process."""
