"""Runs jobs in threads of this process. Hot path: the benchmark `default`."""

import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from time import process_time_ns
from typing import TYPE_CHECKING, cast

from dueline.core.attempt import Cancelled, Ended, Ending, GivenBack
from dueline.core.claim_buffer import learn_run_us
from dueline.core.clock import Clock
from dueline.core.durations import span_text
from dueline.core.errors import JobTimeout
from dueline.core.job import Claim, Job
from dueline.core.logging import log
from dueline.tasks.progress import ProgressReport
from dueline.worker.assignment import Assignment, overtaking
from dueline.worker.chunk_inbox import ChunkInbox
from dueline.worker.context_controls import CANCELLED, LEFT_RUNNING, WorkerStops
from dueline.worker.execution import LOST_AFTER_US, Execution
from dueline.worker.interrupt import Interrupt
from dueline.worker.runner import LostSlot
from dueline.worker.safe_points import place_in

if TYPE_CHECKING:
    import asyncio

    from dueline.worker.async_runner import CoroutineRunner

NOTIFY_EVERY_US = 5_000
"""Interval at which endings are reported in groups while more jobs are ready."""

SHORT_US = 1_000
"""Jobs with a shorter mean run time are left to few threads: waking one costs about 50 us."""

COMPUTING = 0.8
"""Share of a processor core above which the process gains nothing by more threads."""


_ended = cast("Callable[[type[Ended], tuple[Job, Ending, int, int]], Ended]", tuple.__new__)


class _Slot:
    """A thread, and the job that it runs."""

    __slots__ = ("assignment", "interrupt", "lost", "started_us", "thread")

    def __init__(self) -> None:
        self.thread: threading.Thread
        self.assignment: Assignment | None = None
        self.lost: Assignment | None = None  # its handler has outlived its limit
        self.started_us = 0
        self.interrupt = Interrupt()


def used_us() -> int:
    """Return the processor time that this process has used, in microseconds."""
    return process_time_ns() // 1000


class _ProcessorShare:
    """How much of one processor core this process uses.

    It is measured at intervals of NOTIFY_EVERY_US or longer.
    """

    def __init__(self, used_us: Callable[[], int]) -> None:
        self._read_us = used_us
        self._share = 0.0
        self._at_us = self._used_us = 0

    def read(self, now_us: int) -> float:
        """Return the share in the last interval. now_us: by the monotonic clock."""
        passed_us = now_us - self._at_us
        if passed_us >= NOTIFY_EVERY_US:
            used_us = self._read_us()
            self._share = (used_us - self._used_us) / passed_us if self._at_us else 0.0
            self._at_us, self._used_us = now_us, used_us
        return self._share


class ThreadRunner:
    """A fixed number of slots for jobs from one buffer.

    A job takes a thread, which is started when it is first needed. Jobs with coroutine handlers
    take a slot and no thread: they share one event loop.

    Args:
      execution: Runs a handler.
      threads: Number of jobs that run at the same time.
      clock: The machine's clock.
      now_us: Returns the store's time.
      wakeup: Set when there are endings to collect.
      loop: Event loop for coroutines; None for a loop of the runner's own.
      ended: What endings are appended to until they are collected; None for a plain queue.
      processor_us: Returns the processor time that this process has used.
    """

    isolates = False

    def __init__(
        self,
        execution: Execution,
        *,
        threads: int,
        clock: Clock,
        now_us: Callable[[], int],
        wakeup: threading.Event,
        loop: "asyncio.AbstractEventLoop | None" = None,
        ended: "deque[tuple[Job, Ending, int, int]] | None" = None,
        processor_us: Callable[[], int] = used_us,
    ) -> None:
        self.threads = threads
        self.run_us = 0.0
        self._execution = execution
        self._clock = clock
        self._now_us = now_us
        self._wakeup = wakeup
        self._ready: deque[Assignment] = deque()
        self._ended = deque() if ended is None else ended  # Ended, or as much
        self._slots: list[_Slot] = []
        self._work = threading.Condition()
        self._idle = 0
        self._busy = 0  # threads that have a slot: all but those that wait
        self._share = _ProcessorShare(processor_us)
        self._notified_us = 0
        self._offset_us = 0  # the store's time minus the monotonic clock
        self._is_closing = False
        self._coroutines: CoroutineRunner | None = None
        if execution.has_async():
            self._coroutines = self._beside(loop)

    def _beside(self, loop: "asyncio.AbstractEventLoop | None") -> "CoroutineRunner":
        from dueline.worker.async_runner import CoroutineRunner  # noqa: PLC0415  (loads asyncio)

        return CoroutineRunner(
            self._execution, clock=self._clock, ended=self._end_coroutine, loop=loop
        )

    def start(self) -> None:
        """Prepare to run jobs."""
        if self._coroutines is not None:
            self._coroutines.start()

    def submit(self, assignments: Sequence[Assignment]) -> None:
        """Take jobs to run, in order; more urgent ones go before those that wait."""
        self._offset_us = self._now_us() - self._clock.monotonic_us()
        with self._work:
            count = overtaking(assignments, self._ready)
            self._ready.extendleft(reversed(assignments[:count]))
            self._ready.extend(assignments[count:])
        self.spread()

    def spread(self) -> None:
        """Wake threads for ready jobs: one or none if jobs are short, otherwise one for each."""
        if self._coroutines is not None:
            with self._work:
                self._deal()
        waiting = len(self._ready)
        if not waiting or not (self._idle or len(self._slots) < self.threads):
            return
        wanted = waiting
        if 0 < self.run_us < SHORT_US:
            wanted = 1 + int(waiting * self.run_us) // NOTIFY_EVERY_US
            now_us = self._clock.monotonic_us()
            if self._share.read(now_us) > COMPUTING and self._is_moving(now_us):
                return
        with self._work:
            if self._is_closing or not self._has_work():
                return
            wanted = min(wanted, self._free())
            self._work.notify(min(wanted, self._idle))
            for _ in range(min(wanted - self._idle, self.threads - len(self._slots))):
                self._start_thread()

    def _is_moving(self, now_us: int) -> bool:
        """Return whether some thread has just begun a job, so that it soon takes the next one."""
        since_us = now_us - NOTIFY_EVERY_US
        return any(slot.assignment and slot.started_us > since_us for slot in self._slots)

    def _start_thread(self) -> None:
        slot = _Slot()
        slot.thread = threading.Thread(
            target=self._loop, args=(slot,), name=f"dueline-{len(self._slots)}", daemon=True
        )
        self._slots.append(slot)
        self._busy += 1
        slot.thread.start()

    def _free(self) -> int:
        """Count the free slots; a busy thread has one, and so has a coroutine."""
        return self.threads - self._busy - len(self._coroutines or ())

    def _has_work(self) -> bool:
        """Return whether there is work for one more thread."""
        return bool(self._ready) and self._free() > 0

    def _deal(self) -> None:
        """Start the coroutines at the head of the line, while there are slots."""
        assert self._coroutines is not None, "there is no loop to begin them on"
        self._coroutines.offset_us = self._offset_us
        while self._has_work():
            try:
                first = self._ready.popleft()
            except IndexError:  # a thread took it meanwhile
                return
            if not self._execution.is_async(first):
                self._ready.appendleft(first)
                return
            self._coroutines.begin(first)

    def _hand_over(self, slot: _Slot, assignment: Assignment) -> None:
        """Start a coroutine that a thread took.

        Raises:
          IndexError: It has the thread's slot, since no other is free.
        """
        assert self._coroutines is not None, "there is no loop to begin it on"
        slot.assignment = None
        with self._work:
            self._coroutines.offset_us = self._offset_us
            self._coroutines.begin(assignment)
            if self._free() < 0:
                raise IndexError

    def _end_coroutine(self, ended: Ended) -> None:
        """Note on the loop that a coroutine ended, and start what waited for its slot."""
        started_us = ended.started_us and ended.started_us + self._offset_us
        self._ended.append(
            ended._replace(started_us=started_us, ended_us=ended.ended_us + self._offset_us)
        )
        if self._ready:
            self.spread()
        if not self._wakeup.is_set():
            self._wakeup.set()

    def collect(self) -> list[Ended]:
        """Return the attempts that ended since the last call."""
        take = self._ended.popleft
        ended = [_ended(Ended, take()) for _ in range(len(self._ended))]  # this thread alone takes
        took_us = [ended_us - started_us for _, _, started_us, ended_us in ended if started_us]
        if took_us:
            self.run_us = learn_run_us(self.run_us, took_us)
        return ended

    def running(self) -> list[Job]:
        """Return the jobs whose handlers run now."""
        jobs = [taken.job for slot in self._slots if (taken := slot.assignment) is not None]
        return jobs if self._coroutines is None else jobs + self._coroutines.running()

    def take_back(self) -> list[Job]:
        """Take back the jobs whose handlers were not called yet; suspend durable functions."""
        self._execution.controls.is_draining = True
        return self.take_waiting()

    @property
    def capacity(self) -> int:
        """Number of jobs that could run now if nothing else ran."""
        return self.threads

    def waiting_since_us(self) -> int | None:
        """Return when the oldest job arrived that waits for a slot; None if none waits."""
        return min((assignment.since_us for assignment in list(self._ready)), default=None)

    def take_waiting(self) -> list[Job]:
        """Take back the jobs that wait for a slot."""
        taken = []
        with self._work:
            while self._ready:
                try:
                    taken.append(self._ready.popleft().job)
                except IndexError:  # a thread was quicker
                    break
        return taken

    def extend(self, until_us: Mapping[Claim, int]) -> None:
        """Set the ends of all extended claims."""
        self._execution.controls.extend(until_us)

    def extend_more(self, until_us: Mapping[Claim, int]) -> None:
        """Set the ends of some more claims."""
        self._execution.controls.extend_more(until_us)

    def forget(self, lost: Sequence[Claim]) -> None:
        """Drop unstarted jobs whose claims were lost; notify the handlers of the others."""
        self._execution.controls.lose(lost)
        self.withdraw(lost)

    def cancel(self, claims: Sequence[Claim]) -> None:
        """End jobs that have not started; notify the handlers of the others."""
        self._execution.controls.cancel(claims)
        now_us = self._clock.monotonic_us() + self._offset_us
        for job in self.withdraw(claims):
            self._ended.append(Ended(job, Cancelled(CANCELLED), 0, now_us))
        self._wakeup.set()

    def stop_by_force(self, claims: Sequence[Claim]) -> None:
        """End running jobs as cancelled; their threads run on, and hold their slots."""
        forced = set(claims)
        now_us = self._clock.monotonic_us() + self._offset_us
        for slot in self._slots:
            taken, started_us = slot.assignment, slot.started_us + self._offset_us
            for assignment in (taken.chunk or (taken,)) if taken else ():
                if assignment.job.claim() in forced:
                    self._ended.append(
                        Ended(assignment.job, Cancelled(LEFT_RUNNING), started_us, now_us)
                    )
        if self._coroutines is not None:
            self._coroutines.stop_by_force(forced)
        self._wakeup.set()

    def reports(self) -> Mapping[Claim, ProgressReport]:
        """Return the progress that handlers reported since the last call."""
        return self._execution.controls.take_reports()

    @property
    def chunks(self) -> ChunkInbox:
        """The partial results of its handlers."""
        return self._execution.controls.chunks

    def withdraw(self, claims: Sequence[Claim]) -> list[Job]:
        """Take back those jobs whose handlers were not called yet."""
        gone = set(claims)
        taken = []
        with self._work:
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
        begun = sum(slot.assignment is not None for slot in self._slots)
        return len(self._ready) + begun + len(self._coroutines or ())

    def waiting(self) -> int:
        """Count the jobs that are ready and not running."""
        return len(self._ready)

    def interrupt_overdue(self) -> None:
        """Raise JobTimeout in handlers that run longer than their tasks allow.

        It is raised where it harms nothing, see `safe_points`, so perhaps never. Then the handler
        outlives its limit, and keeps its slot and its claim until it ends.
        """
        now_us = self._clock.monotonic_us()
        for slot in self._slots:
            taken, started_us = slot.assignment, slot.started_us
            if taken is None:
                continue
            limit_us = self._execution.timeout_us(taken.job)
            late_us = -1 if limit_us is None else now_us - started_us - limit_us
            if late_us >= 0:
                self._execution.controls.expire(taken)
                slot.interrupt.send(taken, JobTimeout, self._execution.package_of(taken.job))
            elif self._execution.controls.is_stopped(taken):
                slot.interrupt.send(taken, WorkerStops, self._execution.package_of(taken.job))
            if late_us >= LOST_AFTER_US and slot.lost is not taken and slot.assignment is taken:
                slot.lost = taken
                self._log_lost(taken.job, slot.thread.ident)
        if self._coroutines is not None:
            self._coroutines.cancel_overdue()

    def _log_lost(self, job: Job, thread: int | None) -> None:
        limit_us = self._execution.limit_us(job) or 0
        log.warning(
            "job=%s task=%s has outlived its limit of %s; its slot is lost until it ends: %s",
            job.id.hex(), job.task, span_text(limit_us), place_in(thread),
        )  # fmt: skip

    def lost(self) -> list[LostSlot]:
        """Return the slots whose handlers have outlived their limits."""
        slots = []
        for slot in self._slots:
            taken, started_us = slot.assignment, slot.started_us
            if taken is not None and slot.lost is taken:
                limit_us = self._execution.limit_us(taken.job) or 0
                slots.append(LostSlot(taken.job, started_us + limit_us + self._offset_us))
        return slots if self._coroutines is None else slots + self._coroutines.lost()

    def stop_running(self) -> None:
        """Ask running handlers to end: coroutines are cancelled, threads interrupted if possible.

        How each of them ends is collected.
        """
        jobs = [
            part.job
            for slot in self._slots
            if (taken := slot.assignment) is not None
            for part in (taken.chunk or (taken,))
        ]
        if self._coroutines is not None:
            jobs += self._coroutines.jobs()
        self._execution.controls.stop(job.claim() for job in jobs)
        self.interrupt_overdue()

    def close(self) -> None:
        """Let the threads end when they are idle; running handlers are not waited for."""
        self._is_closing = True
        with self._work:
            self._work.notify_all()
        if self._coroutines is not None:
            self._coroutines.close()

    def _loop(self, slot: _Slot) -> None:
        now_us = self._clock.monotonic_us()
        while not self._is_closing:
            try:
                now_us = self._run_all(slot, now_us)
            except IndexError:
                self._wait()
                now_us = self._clock.monotonic_us()

    def _run_all(self, slot: _Slot, now_us: int) -> int:
        """Run plain jobs one after the other, until one needs more; run that one, too.

        Other jobs stay where other threads can take them, so a slow handler delays only itself.

        Raises:
          IndexError: No job is ready, or a coroutine has this thread's slot.
        """
        take, end = self._ready.popleft, self._ended.append
        run, read_us = self._execution.run_plainly, self._clock.monotonic_us
        while not self._is_closing:
            assignment = take()
            if assignment.since_us > now_us:  # it came after the end of the one before
                now_us = read_us()
            slot.started_us = now_us
            slot.assignment = assignment
            ending = run(assignment, now_us + self._offset_us)
            if ending is None:
                if self._coroutines is None or not self._execution.is_async(assignment):
                    return self._run(slot, assignment, now_us)
                self._hand_over(slot, assignment)
                continue
            slot.assignment = None
            offset_us, ended_us = self._offset_us, read_us()
            end((assignment.job, ending, now_us + offset_us, ended_us + offset_us))
            now_us = ended_us
            if ended_us - self._notified_us > NOTIFY_EVERY_US:
                self._notify(ended_us)
        return now_us

    def _wait(self) -> None:
        """Wait, without a slot, until there is work and a slot for it."""
        self._wakeup.set()
        with self._work:
            self._busy -= 1
            self._idle += 1
            while not (self._has_work() or self._is_closing):
                self._work.wait()
            self._idle -= 1
            self._busy += 1

    def _run(self, slot: _Slot, assignment: Assignment, now_us: int) -> int:
        """Run a job from now on; return when it ended, by the monotonic clock."""
        slot.started_us = now_us
        slot.assignment = assignment
        limit_us = self._execution.timeout_us(assignment.job)
        offset_us, read_us = self._offset_us, self._clock.monotonic_us
        slot.interrupt.enter(assignment)
        try:
            if limit_us is None:
                ending = self._execution.run(assignment, now_us + offset_us)
            else:
                until_us = now_us + limit_us
                ending = self._execution.run(
                    assignment, now_us + offset_us, lambda: read_us() >= until_us
                )
        except BaseException as error:  # noqa: BLE001  (a fault in dueline)
            ending = self._execution.failed_outside(error, assignment.job)
        finally:
            slot.interrupt.leave()
        slot.assignment = slot.lost = None
        ended_us = self._clock.monotonic_us()
        started_us = 0 if type(ending) is GivenBack else now_us + offset_us
        self._ended.append((assignment.job, ending, started_us, ended_us + offset_us))
        if ended_us - self._notified_us > NOTIFY_EVERY_US:
            self._notify(ended_us)
        return ended_us

    def _notify(self, now_us: int) -> None:
        """Notify the worker that there are endings to collect."""
        self._notified_us = now_us
        if not self._wakeup.is_set():
            self._wakeup.set()
