"""Jobs that are claimed before they are due."""

import heapq
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import count
from typing import NamedTuple

from dueline.core.clock import StoreTime
from dueline.core.job import Claim, Job, JobId
from dueline.core.logging import log
from dueline.core.store_capabilities import Prefetched
from dueline.worker.assignment import Assignment


class Overdue(NamedTuple):
    """Jobs that are due and that the timer has not started.

    Attributes:
      unready: They are not prepared.
      unplaced: There was no slot for them.
    """

    unready: Sequence[Prefetched]
    unplaced: Sequence[Prefetched]


def times_of(prefetched: Sequence[Prefetched]) -> Mapping[JobId, int]:
    """Return when jobs start."""
    return {job.id: start_us for job, start_us in prefetched}


def placed(
    assignments: Sequence[Assignment], free: int, room: Mapping[str, int]
) -> tuple[list[Assignment], list[Assignment]]:
    """Split jobs into those with a slot and those without.

    Args:
        assignments: The jobs.
        free: Free slots in all.
        room: Slots left of queues with their own slots if all these jobs start; negative if there
            are too few.
    """
    left_by_queue = dict(room)
    starting: list[Assignment] = []
    left: list[Assignment] = []
    for assignment in reversed(assignments):
        queue = assignment.job.lane.queue
        if left_by_queue.get(queue, 0) < 0:
            left_by_queue[queue] += 1
            left.append(assignment)
        else:
            starting.append(assignment)
    starting.reverse()
    return starting[: max(0, free)], [*starting[max(0, free) :], *reversed(left)]


class PrefetchedJobs:
    """Claimed jobs that are not due yet, and a thread that starts them at their time.

    It is not the worker's own thread, which may be waiting for a flush at that moment.

    Args:
      start: Starts jobs; returns those without a slot.
      time: The store's time.
      wakeup: Set when a job is due and was not started.
    """

    def __init__(
        self,
        start: Callable[[Sequence[Assignment]], Sequence[Assignment]],
        time: StoreTime,
        *,
        wakeup: threading.Event,
    ) -> None:
        self._start = start
        self._time = time
        self._wakeup = wakeup
        self._changed = threading.Condition()
        self._waiting: list[tuple[int, int, Job]] = []  # a heap, by time and then as they came
        self._ready: dict[Claim, Assignment] = {}
        self._unplaced: list[Prefetched] = []
        self._numbers = count()
        self._thread: threading.Thread | None = None
        self._is_closing = False

    def __len__(self) -> int:
        """Count the jobs that have not been started."""
        return len(self._waiting) + len(self._unplaced)

    def add(self, prefetched: Sequence[Prefetched]) -> None:
        """Hold jobs until their time."""
        with self._changed:
            for job, start_us in prefetched:
                heapq.heappush(self._waiting, (start_us, next(self._numbers), job))
            self._changed.notify()

    def prepare(self, assignments: Sequence[Assignment]) -> None:
        """Set how held jobs are run: from then on the timer starts them."""
        with self._changed:
            self._ready |= {assignment.job.claim(): assignment for assignment in assignments}
            self._changed.notify()

    def run_timer(self) -> None:
        """Start the timer's thread, once."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._loop, name="dueline-timer", daemon=True)
            self._thread.start()

    def start_due(self) -> None:
        """Start the jobs that are due, while there are slots."""
        with self._changed:
            now_us = self._time.earliest_us()
            due: dict[Claim, int] = {}
            starting: list[Assignment] = []
            while self._waiting and self._waiting[0][0] <= now_us:
                start_us, _, job = self._waiting[0]
                assignment = self._ready.get(job.claim())
                if assignment is None:
                    break
                heapq.heappop(self._waiting)
                starting.append(self._ready.pop(job.claim()))
                due[job.claim()] = start_us
            # The most urgent first, should there not be a slot for each.
            starting.sort(key=lambda assignment: -assignment.job.lane.priority)
            left = self._start(starting) if starting else []
            self._unplaced += [
                Prefetched(prefetched.job, due[prefetched.job.claim()]) for prefetched in left
            ]
            if left:
                self._wakeup.set()

    def take_overdue(self) -> Overdue:
        """Take the jobs that are due and have not started."""
        with self._changed:
            now_us = self._time.earliest_us()
            unready: list[Prefetched] = []
            while self._waiting and self._waiting[0][0] <= now_us:
                start_us, _, job = heapq.heappop(self._waiting)
                self._ready.pop(job.claim(), None)
                unready.append(Prefetched(job, start_us))
            unplaced, self._unplaced = self._unplaced, []
            self._changed.notify()
        return Overdue(unready, unplaced)

    def take(self, claims: Collection[Claim] | None = None) -> list[Prefetched]:
        """Take the jobs of some claims, or all."""
        with self._changed:
            held = [Prefetched(job, start_us) for start_us, _, job in self._waiting]
            held += self._unplaced
            mine = [
                prefetched
                for prefetched in held
                if claims is None or prefetched.job.claim() in claims
            ]
            if mine:
                gone = {prefetched.job.claim() for prefetched in mine}
                self._waiting = [entry for entry in self._waiting if entry[2].claim() not in gone]
                heapq.heapify(self._waiting)
                self._unplaced = [
                    prefetched
                    for prefetched in self._unplaced
                    if prefetched.job.claim() not in gone
                ]
                for claim in gone:
                    self._ready.pop(claim, None)
                self._changed.notify()
            return mine

    def by_queue(self) -> Mapping[str, int]:
        """Count the jobs that have not been started, by queue."""
        counts: dict[str, int] = {}
        with self._changed:
            for job in (
                *(entry[2] for entry in self._waiting),
                *(prefetched.job for prefetched in self._unplaced),
            ):
                counts[job.lane.queue] = counts.get(job.lane.queue, 0) + 1
        return counts

    def wait_us(self, most_us: int) -> int:
        """Return the time until the loop must handle a job here, at most `most_us`.

        The timer's thread handles those that are prepared.
        """
        with self._changed:
            unready = (
                start_us
                for start_us, _, job in self._waiting
                if self._thread is None or job.claim() not in self._ready
            )
            next_us = min(unready, default=None)
        if next_us is None:
            return most_us
        return min(most_us, max(0, next_us - self._time.earliest_us()))

    def close(self) -> None:
        """Start no more jobs."""
        with self._changed:
            self._is_closing = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join()

    def _loop(self) -> None:
        while not self._is_closing:
            try:
                self.start_due()
            except Exception:  # noqa: BLE001  (the worker's own thread gets it, too)
                log.exception("the timer failed; the worker's loop starts the prefetched jobs")
                self._wakeup.set()
            with self._changed:
                if not self._is_closing:
                    self._changed.wait(self._pause_s())

    def _pause_s(self) -> float | None:
        """Return the time until the first job that can be started; None without one."""
        if not self._waiting:
            return None
        start_us, _, job = self._waiting[0]
        if job.claim() not in self._ready:
            return None  # `prepare` notifies, or the loop takes it
        return max(0, start_us - self._time.earliest_us()) / 1e6
