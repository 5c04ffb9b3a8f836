"""Runs jobs in threads of this process."""

import ctypes
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence

from dueline.attempt import Cancelled, Ended, Failed
from dueline.clock import Clock
from dueline.errors import JobTimeout
from dueline.job import Claim, Job
from dueline.policy import learn_run_us
from dueline.progress import Report
from dueline.worker.controls import CANCELLED
from dueline.worker.execution import Assignment, Execution, overtaking

NEWS_EVERY_US = 5_000
"""While more jobs are ready, endings are told in groups, at least this often."""

SHORT_US = 1_000
"""Jobs that run shorter on average are left to few threads: waking one costs about 50 us."""

ARRIVAL_STEPS_MAX = 10_000
"""An exception that a thread raises in itself arrives within a few steps of the interpreter."""


class _Slot:
    """A thread and what it runs."""

    __slots__ = ("assignment", "guard", "interrupted", "started_us", "thread")

    def __init__(self) -> None:
        self.thread: threading.Thread
        self.assignment: Assignment | None = None
        self.started_us = 0
        self.interrupted = False
        self.guard = threading.Lock()


class ThreadRunner:
    """A fixed number of threads that take jobs from one buffer."""

    isolates = False

    def __init__(
        self,
        execution: Execution,
        *,
        threads: int,
        clock: Clock,
        now_us: Callable[[], int],
        news: threading.Event,
    ) -> None:
        """Take what to run jobs with; starts no thread yet.

        Args: now_us: the store's time. news: set when there is something to collect.
        """
        self.threads = threads
        self.run_us = 0.0
        self._execution = execution
        self._clock = clock
        self._now_us = now_us
        self._news = news
        self._ready: deque[Assignment] = deque()
        self._ended: deque[Ended] = deque()
        self._slots = [_Slot() for _ in range(threads)]
        self._work = threading.Condition()
        self._idle = 0
        self._told_us = 0
        self._offset_us = 0  # the store's time less the monotonic clock
        self._is_closing = False

    def start(self) -> None:
        """Start the threads."""
        for number, slot in enumerate(self._slots):
            slot.thread = threading.Thread(
                target=self._loop, args=(slot,), name=f"dueline-{number}", daemon=True
            )
            slot.thread.start()

    def submit(self, assignments: Sequence[Assignment]) -> None:
        """Take jobs to run, in order; more urgent ones than those that wait go first."""
        self._offset_us = self._now_us() - self._clock.monotonic_us()
        count = overtaking(assignments, self._ready)
        self._ready.extendleft(reversed(assignments[:count]))
        self._ready.extend(assignments[count:])
        self.spread()

    def spread(self) -> None:
        """Wake threads for what is ready: one for short jobs, as many as there are otherwise."""
        waiting = len(self._ready)
        if not waiting or not self._idle:
            return
        wanted = waiting
        if 0 < self.run_us < SHORT_US:
            wanted = 1 + int(waiting * self.run_us) // NEWS_EVERY_US
        with self._work:
            self._work.notify(min(wanted, self._idle))

    def collect(self) -> list[Ended]:
        """Take the attempts that ended since the last call."""
        ended = []
        while self._ended:
            ended.append(self._ended.popleft())
        took_us = [one.ended_us - one.started_us for one in ended if one.started_us]
        if took_us:
            self.run_us = learn_run_us(self.run_us, took_us)
        return ended

    def running(self) -> list[Job]:
        """List the jobs whose handlers run now."""
        return [taken.job for slot in self._slots if (taken := slot.assignment) is not None]

    def take_back(self) -> list[Job]:
        """Take back the jobs that no handler was called for yet."""
        taken = []
        while self._ready:
            try:
                taken.append(self._ready.popleft().job)
            except IndexError:  # a thread was quicker
                break
        return taken

    def forget(self, lost: Sequence[Claim]) -> None:
        """Drop jobs whose claims were lost, as far as they did not start; tell the others."""
        self._execution.controls.lose(lost)
        self._withdraw(lost)

    def cancel(self, claims: Sequence[Claim]) -> None:
        """End jobs that did not start; tell the others that their end is wished for."""
        self._execution.controls.cancel(claims)
        now_us = self._clock.monotonic_us() + self._offset_us
        for job in self._withdraw(claims):
            self._ended.append(Ended(job, Cancelled(CANCELLED), 0, now_us))
        self._news.set()

    def reports(self) -> Mapping[Claim, Report]:
        """Take what handlers said of their progress since the last call."""
        return self._execution.controls.take_reports()

    def _withdraw(self, claims: Sequence[Claim]) -> list[Job]:
        """Take back jobs as far as no handler was called for them yet."""
        gone = set(claims)
        taken = []
        for assignment in list(self._ready):
            if assignment.job.claim() in gone:
                try:
                    self._ready.remove(assignment)
                except ValueError:  # started meanwhile
                    continue
                taken.append(assignment.job)
        return taken

    def load(self) -> int:
        """Count the jobs that are ready or running."""
        return len(self._ready) + sum(slot.assignment is not None for slot in self._slots)

    def waiting(self) -> int:
        """Count the jobs that are ready and not running."""
        return len(self._ready)

    def interrupt_overdue(self) -> None:
        """Raise JobTimeout in handlers that run longer than their tasks allow.

        It is raised between two Python instructions: a call into C that does not return is
        not interrupted.
        """
        now_us = self._clock.monotonic_us()
        for slot in self._slots:
            taken, started_us = slot.assignment, slot.started_us
            limit_us = self._execution.timeout_us(taken.job) if taken else None
            if limit_us is None or now_us - started_us < limit_us:
                continue
            with slot.guard:
                if slot.assignment is taken and not slot.interrupted:
                    slot.interrupted = True
                    _raise_in(slot.thread, JobTimeout)

    def close(self) -> None:
        """Let the threads end when they are idle; a handler that runs is not waited for."""
        self._is_closing = True
        with self._work:
            self._work.notify_all()

    def _loop(self, slot: _Slot) -> None:
        now_us = self._clock.monotonic_us()
        while not self._is_closing:
            try:
                assignment = self._ready.popleft()
            except IndexError:
                self._wait()
                now_us = self._clock.monotonic_us()
            else:
                now_us = self._run(slot, assignment, now_us)

    def _wait(self) -> None:
        self._news.set()
        with self._work:
            self._idle += 1
            if not self._ready and not self._is_closing:
                self._work.wait()
            self._idle -= 1

    def _run(self, slot: _Slot, assignment: Assignment, now_us: int) -> int:
        """Run a job from now on; answer when it ended, by the monotonic clock."""
        slot.started_us = now_us
        slot.assignment = assignment
        offset_us = self._offset_us
        try:
            ending = self._execution.run(assignment, now_us + offset_us)
            self._disarm(slot)
        except JobTimeout as error:  # it came after the handler, at most once
            self._disarm(slot)
            ending = Failed("JobTimeout", error.message, "", retry=True)
        ended_us = self._clock.monotonic_us()
        self._ended.append(Ended(assignment.job, ending, now_us + offset_us, ended_us + offset_us))
        if ended_us - self._told_us > NEWS_EVERY_US:
            self._told_us = ended_us
            if not self._news.is_set():
                self._news.set()
        return ended_us

    def _disarm(self, slot: _Slot) -> None:
        """Leave no JobTimeout behind that could hit the thread's next job.

        Whether it came cannot be told, since the handler may have caught it. So one is raised
        here, in place of one still on its way. (To take it back would do, too, but CPython
        3.11 then keeps looking for it: every call is slower, and under a tracer never returns.)
        """
        with slot.guard:
            slot.assignment = None
            is_armed, slot.interrupted = slot.interrupted, False
        if is_armed:
            try:
                _raise_in(slot.thread, JobTimeout)
                for _ in range(ARRIVAL_STEPS_MAX):
                    pass
            except JobTimeout:
                return


def _raise_in(thread: threading.Thread, kind: type[BaseException]) -> None:
    ctypes.pythonapi.PyThreadState_SetAsyncExc(
        ctypes.c_ulong(thread.ident or 0), ctypes.py_object(kind)
    )
