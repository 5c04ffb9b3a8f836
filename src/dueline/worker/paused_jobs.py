"""Keeps a worker's hands off jobs that it claimed and may not run.

Their tasks are paused, or have limits of which the callers knew nothing.
"""

import threading
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from dueline.core import features
from dueline.core.attempt import Ended
from dueline.core.clock import SECOND_US
from dueline.core.engine import Engine
from dueline.core.job import Job
from dueline.core.lane import LIMIT_MARK, Lane
from dueline.core.tuples import field
from dueline.core.user_code import Raised, contain
from dueline.jobs.paused_tasks import clear, defer, move_to_limits, requeue
from dueline.tasks.handler import Handler
from dueline.worker.claimer import ClaimedJob
from dueline.worker.execution import failure
from dueline.worker.triage import queues_of

LATE_US: Final = 60 * SECOND_US
"""Who sees the end of a pause brings back what it set aside in so long before, when others had
seen the end and it had not."""

LANES_MAX: Final = 1_000

_job_of = field(ClaimedJob, "job")


class DeferredJob(NamedTuple):
    """A claimed job that is put out of the way; limits: those it lacks, none for a paused task."""

    job: Job
    limits: Sequence[str]


class Deferral(NamedTuple):
    """Claimed jobs, sorted: those that run, that wait, and whose limits cannot be told."""

    fit: list[ClaimedJob]
    waiting: list[DeferredJob]
    failed: list[Ended]


class DeferredJobs:
    """One worker's part in pauses of tasks, and in limits."""

    def __init__(
        self, engine: Engine, limited: Mapping[str, Handler], wakeup: threading.Event
    ) -> None:
        self._engine = engine
        self._limited = limited
        self._wakeup = wakeup
        self._touched: dict[tuple[str, str], dict[Lane, int]] = {}

    def sort(self, taken: list[ClaimedJob]) -> Deferral:
        """Sort claimed jobs by whether this worker may run them."""
        settings = self._engine.catalog.settings
        queues = queues_of(map(_job_of, taken))
        paused = {queue: settings(queue).paused_tasks for queue in queues}
        if not (self._limited or any(paused.values())):
            return Deferral(taken, [], [])
        found = Deferral([], [], [])
        for one in taken:
            if one.job.task in paused[one.job.lane.queue]:
                found.waiting.append(DeferredJob(one.job, ()))
                continue
            limits = contain(self._lacking, one.job)
            if isinstance(limits, Raised):
                found.failed.append(self._failed(one.job, limits.error))
                self._wakeup.set()  # its end is to be stored
            elif limits:
                found.waiting.append(DeferredJob(one.job, limits))
            else:
                found.fit.append(one)
        return found

    def _lacking(self, job: Job) -> Sequence[str]:
        """Name the limits of its task without which a job was stored.

        One that has any keeps them: others may know the task by other limits.
        """
        if job.task not in self._limited or LIMIT_MARK in job.lane.tenant:
            return ()
        return self._limited[job.task].limits_of(job.codec, job.body)

    def _failed(self, job: Job, error: BaseException) -> Ended:
        """Return the end of an attempt: a job whose limits are not known is not run without."""
        ending = failure(error, self._limited[job.task])
        return Ended(job, ending, 0, self._engine.time.latest_us())

    def defer(self, waiting: Sequence[DeferredJob]) -> None:
        """Put claimed jobs out of the way: into a lane with limits, or that of a pause."""
        if not waiting:
            return
        self._wakeup.set()  # what stood behind them may be due
        unlimited = [(one.job, one.limits) for one in waiting if one.limits]
        if unlimited:
            self._engine.catalog.adopt(features.LIMITS)
            move_to_limits(self._engine, unlimited)
        self._defer_paused([one.job for one in waiting if not one.limits])

    def _defer_paused(self, jobs: Sequence[Job]) -> None:
        """Set jobs of paused tasks aside, with more that wait beside them."""
        if not jobs:
            return
        now_us = self._engine.time.latest_us()
        for job in jobs:
            self._touch(job.lane, job.task, now_us)
        defer(self._engine, jobs)
        for lane in {job.lane for job in jobs}:
            paused = self._engine.catalog.settings(lane.queue).paused_tasks
            for task in paused:
                self._touch(lane, task, now_us)
            clear(self._engine, lane, paused)

    def _touch(self, lane: Lane, task: str, now_us: int) -> None:
        """Remember that jobs of a lane were set aside; what is long past matters no more."""
        lanes = self._touched.setdefault((lane.queue, task), {})
        if len(lanes) >= LANES_MAX:
            lanes = {one: us for one, us in lanes.items() if us >= now_us - LATE_US}
            self._touched[lane.queue, task] = lanes
        lanes[lane] = now_us

    def requeue(self) -> None:
        """Bring back what was set aside though its pause was over: this worker knew it late."""
        for queue, task in [*self._touched]:
            if task not in self._engine.catalog.settings(queue).paused_tasks:
                since_us = self._engine.time.earliest_us() - LATE_US
                lanes = [lane for lane, us in self._touched[queue, task].items() if us >= since_us]
                requeue(self._engine, lanes, {task}, since_us)
                del self._touched[queue, task]
