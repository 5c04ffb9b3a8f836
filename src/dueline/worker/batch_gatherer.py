"""Collects jobs of batch tasks, and submits each batch to a runner as one job."""

import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from dueline.core.attempt import Cancelled, Each, Ended, GivenBack
from dueline.core.clock import Clock
from dueline.core.job import Claim, Job
from dueline.tasks.batch_handler import BatchHandler
from dueline.worker.assignment import Assignment
from dueline.worker.context_controls import CANCELLED
from dueline.worker.runner import Runner

GATHERED_MAX: Final = 1_000
"""Maximum number of jobs that wait for their batch; above it, the oldest batch runs as it is."""

_Kind = tuple[str, str, str]


@dataclass(slots=True)
class _Gathering:
    """A batch that waits for more jobs, until `until_us` by the monotonic clock."""

    until_us: int
    jobs: list[Assignment] = field(default_factory=list)


class BatchGatherer:
    """A runner that collects the jobs of batch tasks in front of the real runner.

    The real runner sees a batch as one job in one slot: it has the id of the most urgent member and
    a fence that no claim has. All members end when that job ends. The worker sees the members.
    Members that wait for their batch are held, and take no slot.

    Args:
      runner: The real runner.
      handlers: The batch tasks.
      times: The machine's clock, and the store's time.
      marked: Claims whose handlers are recorded as started: these jobs never wait for a batch.
    """

    def __init__(
        self,
        runner: Runner,
        handlers: Mapping[str, BatchHandler],
        times: tuple[Clock, Callable[[], int]],
        marked: Collection[Claim],
    ) -> None:
        self._runner = runner
        self._handlers = handlers
        self._clock, self._now_us = times
        self._marked = marked
        self._guard = threading.Lock()
        self._open: dict[_Kind, _Gathering] = {}
        self._begun: dict[Claim, dict[Claim, Job]] = {}
        self._ended: list[Ended] = []
        self.isolates = runner.isolates
        self.threads = runner.threads
        self.start, self.spread, self.close = runner.start, runner.spread, runner.close
        self.chunks = runner.chunks
        self.reports, self.waiting = runner.reports, runner.waiting
        self.waiting_since_us, self.extend = runner.waiting_since_us, runner.extend
        self.interrupt_overdue = runner.interrupt_overdue
        self.stop_by_force, self.stop_running = runner.stop_by_force, runner.stop_running
        self.lost = runner.lost
        self.more = 0

    @property
    def run_us(self) -> float:
        """Mean run time of a call."""
        return self._runner.run_us

    @property
    def capacity(self) -> int:
        """Number of calls that could run now if nothing else ran."""
        return self._runner.capacity

    # Gather

    def submit(self, assignments: Sequence[Assignment]) -> None:
        """Take jobs to run; those of batch tasks wait until their batch is full or overdue."""
        ready: list[Assignment] = []
        at_once: dict[_Kind, _Gathering] = {}
        now_us = self._clock.monotonic_us()
        with self._guard:
            for assignment in assignments:
                handler = self._handlers.get(assignment.job.task)
                key = None if handler is None or assignment.alone else handler.key_of(assignment)
                if handler is None or key is None:
                    ready.append(assignment)
                    continue
                kind = (assignment.job.task, assignment.job.lane.queue, key)
                line = at_once if assignment.job.claim() in self._marked else self._open
                gathering = line.setdefault(kind, _Gathering(now_us + handler.batch.within_us))
                gathering.jobs.append(assignment)
                if len(gathering.jobs) >= handler.batch.size:
                    ready.append(self._joined(line.pop(kind)))
            ready += map(self._joined, at_once.values())
        if ready:
            self._runner.submit(ready)

    def submit_overdue(self) -> None:
        """Submit the batches that have waited long enough."""
        if not self._open:
            return
        now_us = self._clock.monotonic_us()
        with self._guard:
            kinds = [kind for kind, line in self._open.items() if line.until_us <= now_us]
            left = sum(len(line.jobs) for line in self._open.values()) - GATHERED_MAX
            for kind, line in self._open.items():  # as they began
                if left > 0 and kind not in kinds:
                    kinds.append(kind)
                    left -= len(line.jobs)
            ready = [self._joined(self._open.pop(kind)) for kind in kinds]
        if ready:
            self._runner.submit(ready)

    def _joined(self, gathering: _Gathering) -> Assignment:
        """Make one assignment of the jobs of a batch."""
        members = gathering.jobs
        if len(members) == 1:
            return members[0]._replace(since_us=self._clock.monotonic_us())
        first = max(members, key=lambda member: member.job.lane.priority)  # the first most urgent
        job = first.job._replace(fence=-first.job.fence)
        self._begun[job.claim()] = {member.job.claim(): member.job for member in members}
        return first._replace(
            job=job,
            last=None,
            firm=any(member.firm for member in members),
            chunk=tuple(members),
            since_us=self._clock.monotonic_us(),
        )

    def wait_us(self, most_us: int) -> int:
        """Return the time until a batch has waited long enough, at most `most_us`."""
        if not self._open:
            return most_us
        with self._guard:
            until_us = min((line.until_us for line in self._open.values()), default=None)
        if until_us is None:
            return most_us
        return max(0, min(most_us, until_us - self._clock.monotonic_us()))

    # Slots

    @property
    def slotless(self) -> int:
        """Number of jobs without a slot: those that wait for a batch, and all but one of each."""
        gathered = self.gathered
        with self._guard:
            return gathered + sum(len(jobs) - 1 for jobs in self._begun.values())

    @property
    def gathered(self) -> int:
        """Number of jobs that wait for more jobs of their batch."""
        with self._guard:
            return sum(len(line.jobs) for line in self._open.values())

    def by_queue(self) -> Counter[str]:
        """Count the jobs that take no slot, by queue."""
        counts: Counter[str] = Counter()
        with self._guard:
            for (_, queue, _), line in self._open.items():
                counts[queue] += len(line.jobs)
            for jobs in self._begun.values():
                for job in list(jobs.values())[1:]:
                    counts[job.lane.queue] += 1
        return counts

    def seen(self, taken: Iterable[Job]) -> None:
        """Learn from a claim how many jobs to claim beyond the free slots.

        The tasks of the next jobs are not known in advance. If all jobs of the last claim were of
        batch tasks, up to three times as many are claimed.
        """
        tasks = [job.task for job in taken]
        is_all = bool(tasks) and all(task in self._handlers for task in tasks)
        most = max(self._handlers[task].batch.size for task in set(tasks)) if is_all else 0
        self.more = min(2 * len(tasks), most)

    # What the worker sees of the runner

    def collect(self) -> list[Ended]:
        """Return the attempts that ended since the last call, one for each job."""
        with self._guard:
            ended, self._ended = self._ended, []
            for attempt in self._runner.collect():
                members = (
                    self._begun.pop(attempt.job.claim(), None) if attempt.job.fence < 0 else None
                )
                if members is None:
                    ended.append(attempt)
                else:
                    ended += _apart(attempt, members)
        return ended

    def running(self) -> list[Job]:
        """Return the jobs whose handlers run now."""
        return self._members(self._runner.running())

    def take_back(self) -> list[Job]:
        """Take back the jobs that have not started."""
        taken = self._all_of(self._runner.take_back())
        with self._guard:
            taken += [gathered.job for line in self._open.values() for gathered in line.jobs]
            self._open.clear()
        return taken

    def take_waiting(self) -> list[Job]:
        """Take back the jobs that wait for a slot, but not those that wait for their batch."""
        return self._all_of(self._runner.take_waiting())

    def _all_of(self, leaders: Sequence[Job]) -> list[Job]:
        """Return the jobs of batches that were taken back, and drop these batches."""
        taken = self._members(leaders)
        with self._guard:
            for leader in leaders:
                self._begun.pop(leader.claim(), None)
        return taken

    def _members(self, jobs: Iterable[Job]) -> list[Job]:
        """Replace batches by their jobs."""
        members: list[Job] = []
        with self._guard:
            for job in jobs:
                members += self._begun.get(job.claim(), {}).values() if job.fence < 0 else (job,)
        return members

    def forget(self, lost: Sequence[Claim]) -> None:
        """Drop unstarted jobs whose claims were lost; notify the handlers of the others."""
        self._withdraw(set(lost))
        with self._guard:
            for jobs in self._begun.values():
                for claim in jobs.keys() & set(lost):
                    del jobs[claim]
        self._runner.forget(lost)

    def cancel(self, claims: Sequence[Claim]) -> None:
        """End jobs that wait for their batch; notify the handlers of the others."""
        gone = self._withdraw(set(claims))
        now_us = self._now_us()
        with self._guard:
            self._ended += [Ended(job, Cancelled(CANCELLED), 0, now_us) for job in gone]
        self._runner.cancel(claims)

    def _withdraw(self, claims: Collection[Claim]) -> list[Job]:
        """Take the jobs of some claims out of the batches that wait."""
        gone: list[Job] = []
        with self._guard:
            for kind, line in [*self._open.items()]:
                gone += [job.job for job in line.jobs if job.job.claim() in claims]
                line.jobs = [job for job in line.jobs if job.job.claim() not in claims]
                if not line.jobs:
                    del self._open[kind]
        return gone


def _apart(ended: Ended, members: Mapping[Claim, Job]) -> list[Ended]:
    """Return how each job of a batch ended; jobs whose claims were lost are omitted."""
    if isinstance(ended.ending, Each):
        endings = dict(ended.ending.endings)
        return [
            ended._replace(
                job=job,
                ending=endings[claim],
                started_us=0 if type(endings[claim]) is GivenBack else ended.started_us,
            )
            for claim, job in members.items()
            if claim in endings
        ]
    return [ended._replace(job=job) for job in members.values()]


def gathering(
    runner: Runner,
    handlers: Mapping[str, BatchHandler],
    times: tuple[Clock, Callable[[], int]],
    marked: Collection[Claim],
) -> BatchGatherer | None:
    """Return a gatherer in front of a runner; None without batch tasks."""
    return BatchGatherer(runner, handlers, times, marked) if handlers else None
