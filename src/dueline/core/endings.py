"""Wakes threads that wait for a job when a worker of this process has stored how it ended.

Nothing depends on it: a thread that waits looks at the store, too.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from threading import Event

from dueline.core.clock import Clock
from dueline.core.job import JobId


class Endings:
    """The threads of a process that wait for jobs, and whether a worker serves beside them."""

    def __init__(self) -> None:
        self._workers = 0
        self._waiting: dict[JobId, list[Event]] = {}

    @contextmanager
    def serving(self) -> Iterator[None]:
        """Note that a worker runs during the block."""
        self._workers += 1
        try:
            yield
        finally:
            self._workers -= 1

    @contextmanager
    def waiting(self, *job_ids: JobId) -> Iterator[Event]:
        """Make an event for the ends of attempts of jobs."""
        event = Event()
        for job_id in job_ids:
            self._waiting.setdefault(job_id, []).append(event)
        try:
            yield event
        finally:
            for job_id in job_ids:
                events = self._waiting[job_id]
                events.remove(event)
                if not events:
                    self._waiting.pop(job_id, None)

    def wait(self, event: Event, clock: Clock, seconds: float) -> None:
        """Wait for an event; without a worker in this process, let the time pass."""
        if self._workers:
            event.wait(seconds)
            event.clear()
        else:
            clock.sleep(seconds)

    def note(self, job_ids: Iterable[JobId]) -> None:
        """Wake the threads that wait for jobs."""
        if self._waiting:
            for job_id in job_ids:
                for event in tuple(self._waiting.get(job_id, ())):
                    event.set()
