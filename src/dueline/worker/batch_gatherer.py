"""Gathers jobs of tasks that take many at once, and hands them to a runner as one."""

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
"""With more jobs than these that wait for others, the oldest chunk is not waited for."""

_Kind = tuple[str, str, str]


@dataclass(slots=True)
class _Gathering:
    """A chunk that waits for more. until_us: so long, by the machine's clock."""

    until_us: int
    jobs: list[Assignment] = field(default_factory=list)


class BatchGatherer:
    """A runner for a worker some of whose tasks take chunks; the real one is behind it.

    That one sees a chunk as a job: it goes under the id of its most urgent member, with a fence
    that no claim has, takes one slot, and however that job ends, they all do. The worker sees
    its members. Those that wait for others are held, and take no slot.
    """

    def __init__(
        self,
        runner: Runner,
        handlers: Mapping[str, BatchHandler],
        times: tuple[Clock, Callable[[], int]],
        marked: Collection[Claim],
    ) -> None:
        """Take the real runner, and the tasks whose jobs are gathered.

        Args:
          times: the machine's clock, and the store's time. marked: claims of which the store
            knows that their handlers were started: nothing may keep these waiting.
        """
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
        self.reports, self.waiting = runner.reports, runner.waiting
        self.waiting_since_us, self.extend = runner.waiting_since_us, runner.extend
        self.interrupt_overdue = runner.interrupt_overdue
        self.more = 0

    @property
    def run_us(self) -> float:
        """How long a call runs."""
        return self._runner.run_us

    @property
    def capacity(self) -> int:
        """How many calls could run now if nothing else did."""
        return self._runner.capacity

    # Gather

    def submit(self, assignments: Sequence[Assignment]) -> None:
        """Take jobs to run; those of tasks with chunks wait until one is full, or long enough."""
        ready: list[Assignment] = []
        at_once: dict[_Kind, _Gathering] = {}
        now_us = self._clock.monotonic_us()
        with self._guard:
            for one in assignments:
                handler = self._handlers.get(one.job.task)
                key = None if handler is None or one.alone else handler.key_of(one)
                if handler is None or key is None:
                    ready.append(one)
                    continue
                kind = (one.job.task, one.job.lane.queue, key)
                line = at_once if one.job.claim() in self._marked else self._open
                gathering = line.setdefault(kind, _Gathering(now_us + handler.chunk.within_us))
                gathering.jobs.append(one)
                if len(gathering.jobs) >= handler.chunk.size:
                    ready.append(self._joined(line.pop(kind)))
            ready += map(self._joined, at_once.values())
        if ready:
            self._runner.submit(ready)

    def submit_overdue(self) -> None:
        """Have the chunks run that have waited long enough."""
        if not self._open:
            return
        now_us = self._clock.monotonic_us()
        with self._guard:
            kinds = [kind for kind, one in self._open.items() if one.until_us <= now_us]
            left = sum(len(one.jobs) for one in self._open.values()) - GATHERED_MAX
            for kind, one in self._open.items():  # as they began
                if left > 0 and kind not in kinds:
                    kinds.append(kind)
                    left -= len(one.jobs)
            ready = [self._joined(self._open.pop(kind)) for kind in kinds]
        if ready:
            self._runner.submit(ready)

    def _joined(self, gathering: _Gathering) -> Assignment:
        """Make one of the jobs of a chunk."""
        some = gathering.jobs
        if len(some) == 1:
            return some[0]._replace(since_us=self._clock.monotonic_us())
        first = max(some, key=lambda one: one.job.lane.priority)  # the first of the most urgent
        job = first.job._replace(fence=-first.job.fence)
        self._begun[job.claim()] = {one.job.claim(): one.job for one in some}
        return first._replace(
            job=job,
            last=None,
            firm=any(one.firm for one in some),
            chunk=tuple(some),
            since_us=self._clock.monotonic_us(),
        )

    def wait_us(self, most_us: int) -> int:
        """Tell how long it is, at most so long, until a chunk has waited long enough."""
        if not self._open:
            return most_us
        with self._guard:
            until_us = min((one.until_us for one in self._open.values()), default=None)
        if until_us is None:
            return most_us
        return max(0, min(most_us, until_us - self._clock.monotonic_us()))

    # Slots

    @property
    def slotless(self) -> int:
        """How many jobs take no slot: those that wait for others, and all but one of a chunk."""
        gathered = self.gathered
        with self._guard:
            return gathered + sum(len(jobs) - 1 for jobs in self._begun.values())

    @property
    def gathered(self) -> int:
        """How many jobs wait for more jobs of their batch."""
        with self._guard:
            return sum(len(one.jobs) for one in self._open.values())

    def by_queue(self) -> Counter[str]:
        """Count the jobs that take no slot, by queue."""
        counts: Counter[str] = Counter()
        with self._guard:
            for (_, queue, _), one in self._open.items():
                counts[queue] += len(one.jobs)
            for jobs in self._begun.values():
                for job in list(jobs.values())[1:]:
                    counts[job.lane.queue] += 1
        return counts

    def seen(self, taken: Iterable[Job]) -> None:
        """Learn from what a claim brought how many jobs more than there are slots are claimed.

        Nobody knows beforehand of which tasks they will be. So it is up to three times as many
        as came last, as long as all of those were of tasks with chunks.
        """
        tasks = [job.task for job in taken]
        is_all = bool(tasks) and all(task in self._handlers for task in tasks)
        most = max(self._handlers[task].chunk.size for task in set(tasks)) if is_all else 0
        self.more = min(2 * len(tasks), most)

    # What the worker sees of the runner

    def collect(self) -> list[Ended]:
        """Take the attempts that ended since the last call, each job's by itself."""
        with self._guard:
            found, self._ended = self._ended, []
            for one in self._runner.collect():
                members = self._begun.pop(one.job.claim(), None) if one.job.fence < 0 else None
                if members is None:
                    found.append(one)
                else:
                    found += _apart(one, members)
        return found

    def running(self) -> list[Job]:
        """List the jobs whose handlers run now."""
        return self._members(self._runner.running())

    def take_back(self) -> list[Job]:
        """Take back the jobs that no handler was called for yet."""
        taken = self._all_of(self._runner.take_back())
        with self._guard:
            taken += [one.job for line in self._open.values() for one in line.jobs]
            self._open.clear()
        return taken

    def take_waiting(self) -> list[Job]:
        """Take back the jobs that wait for a slot, and not for others of their batch."""
        return self._all_of(self._runner.take_waiting())

    def _all_of(self, leaders: Sequence[Job]) -> list[Job]:
        """Name the jobs of batches that were taken back, and forget these."""
        taken = self._members(leaders)
        with self._guard:
            for leader in leaders:
                self._begun.pop(leader.claim(), None)
        return taken

    def _members(self, jobs: Iterable[Job]) -> list[Job]:
        """Name the jobs of chunks in their place."""
        found: list[Job] = []
        with self._guard:
            for job in jobs:
                found += self._begun.get(job.claim(), {}).values() if job.fence < 0 else (job,)
        return found

    def forget(self, lost: Sequence[Claim]) -> None:
        """Drop jobs whose claims were lost, as far as they did not start; tell the others."""
        self._withdraw(set(lost))
        with self._guard:
            for jobs in self._begun.values():
                for claim in jobs.keys() & set(lost):
                    del jobs[claim]
        self._runner.forget(lost)

    def cancel(self, claims: Sequence[Claim]) -> None:
        """End jobs that wait for others; tell the others that their end is wished for."""
        gone = self._withdraw(set(claims))
        now_us = self._now_us()
        with self._guard:
            self._ended += [Ended(job, Cancelled(CANCELLED), 0, now_us) for job in gone]
        self._runner.cancel(claims)

    def _withdraw(self, claims: Collection[Claim]) -> list[Job]:
        """Take jobs of some claims out of the chunks that wait."""
        gone: list[Job] = []
        with self._guard:
            for kind, line in [*self._open.items()]:
                gone += [one.job for one in line.jobs if one.job.claim() in claims]
                line.jobs = [one for one in line.jobs if one.job.claim() not in claims]
                if not line.jobs:
                    del self._open[kind]
        return gone


def _apart(ended: Ended, members: Mapping[Claim, Job]) -> list[Ended]:
    """Tell how each job of a chunk ended. Those that were lost meanwhile are not among them."""
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
    """Make what gathers jobs before they come to a runner; None where no task takes many."""
    return BatchGatherer(runner, handlers, times, marked) if handlers else None
