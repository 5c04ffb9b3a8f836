"""Defers claimed jobs that this worker may not run.

Their tasks are paused, unknown to it, or have limits that the jobs were enqueued without.
"""

import threading
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from dueline.coordination.worker_registry import KnownTasks, live_workers
from dueline.core.attempt import Ended
from dueline.core.clock import SECOND_US
from dueline.core.engine import Engine
from dueline.core.features import NEEDS
from dueline.core.job import AWAY_US, Job
from dueline.core.lane import (
    CODEC_MAX,
    Lane,
    lane_tenant,
    limits_of,
    needs_text,
    task_key,
    task_of,
    tenant_of,
    tenant_with_needs,
    with_task,
)
from dueline.core.limit_costs import limits_with_costs
from dueline.core.logging import log
from dueline.core.user_code import Raised, contain
from dueline.core.worker_needs import text_of
from dueline.jobs.paused_tasks import clear, defer, move_to_lanes, requeue, waiting_in
from dueline.jobs.unknown_tasks import known_tasks, unknown_text
from dueline.tasks.failures import failure
from dueline.tasks.handler import Handler
from dueline.worker.circuits import Circuits
from dueline.worker.claimer import ClaimedJob
from dueline.worker.triage import queues_of

LATE_US: Final = 60 * SECOND_US
"""How long before the end of a pause a worker searches for jobs that it deferred, since it may have
noticed the end later than others.
"""

ASK_EVERY_US: Final = 5 * SECOND_US
"""How often a worker asks whether a live worker knows a task that it does not know."""

LANES_MAX: Final = 1_000


class DeferredJob(NamedTuple):
    """A claimed job that is deferred.

    Attributes:
      tenant: That of the lane to move it to, which says who may claim it; None for a paused task.
      limits: Its limits with their numbers of units, if it is moved to a lane with limits.
    """

    job: Job
    tenant: str | None
    limits: Sequence[str] = ()


def _tenant_with_task(job: Job) -> str:
    """Return the tenant of the lane in which a job waits for workers that know its task."""
    return with_task(job.lane, job.task, job.codec).tenant


class Deferral(NamedTuple):
    """Claimed jobs, sorted: those that run, that are deferred, and whose limits raised an error."""

    fit: list[ClaimedJob]
    waiting: list[DeferredJob]
    failed: list[Ended]


class DeferredJobs:
    """Defers jobs of paused tasks, and moves jobs to lanes with their limits or their task."""

    def __init__(
        self,
        engine: Engine,
        known: KnownTasks,
        limited: Mapping[str, Handler],
        wakeup: threading.Event,
        circuits: Circuits,
    ) -> None:
        self._engine = engine
        self._known = known
        self._moved: set[tuple[str, str]] = set()  # queues and keys of tasks to ask about
        self._ask_again_us: dict[tuple[str, str], int] = {}
        self._limited = limited
        self._wakeup = wakeup
        self.circuits = circuits
        self._touched: dict[tuple[str, str], dict[Lane, int]] = {}

    def sort(self, taken: list[ClaimedJob], deaths: Sequence[ClaimedJob] = ()) -> Deferral:
        """Sort claimed jobs by whether this worker may run them.

        Args:
            taken: The jobs.
            deaths: Jobs whose last attempts ended with their workers, also those that do not run.
        """
        if deaths:
            self.circuits.died(deaths)
        settings = self._engine.catalog.settings
        jobs = [job for job, _ in taken]
        paused = {queue: settings(queue).paused_tasks for queue in queues_of(jobs)}
        has_unknown = self._has_unknown(jobs)
        if not (has_unknown or self._limited or any(paused.values())):
            return Deferral(taken, [], [])
        deferral = Deferral([], [], [])
        for claimed in taken:
            lane, task = claimed.job.lane, claimed.job.task
            if has_unknown and not self._knows(claimed.job):
                deferral.waiting.append(DeferredJob(claimed.job, _tenant_with_task(claimed.job)))
                continue
            if task in paused[lane.queue] and not self.circuits.lets_probe(claimed.job):
                deferral.waiting.append(DeferredJob(claimed.job, None))
                continue
            deferred = contain(self._lacking, claimed.job)
            if isinstance(deferred, Raised):
                deferral.failed.append(self._failed(claimed.job, deferred.error))
                self._wakeup.set()  # its ending is stored by the next pass
            elif deferred is not None:
                deferral.waiting.append(deferred)
            else:
                deferral.fit.append(claimed)
        return deferral

    def _has_unknown(self, jobs: Sequence[Job]) -> bool:
        tasks, codecs = {job.task for job in jobs}, {job.codec for job in jobs}
        known = self._known  # every worker knows the own steps of workflows, which have no task
        return any(task and task not in known.tasks for task in tasks) or any(
            codec > CODEC_MAX and codec not in known.codecs for codec in codecs
        )

    def _knows(self, job: Job) -> bool:
        return not job.task or task_key(job.task, job.codec) in self._known

    def _lacking(self, job: Job) -> DeferredJob | None:
        """Return where a job waits that was enqueued without the limits or needs of its task.

        A job that has limits keeps them, and so for needs: other processes may declare others for
        the task.
        """
        handler = self._limited.get(job.task)
        if handler is None:
            return None
        lane = job.lane
        needs = needs_text(lane) or text_of(handler.needs)
        own = limits_of(lane)
        limits = () if own else handler.limits_of(job.codec, job.body)
        if not limits and needs == needs_text(lane):
            return None
        if needs != needs_text(lane):
            self._engine.catalog.adopt(NEEDS)
        tenant = tenant_with_needs(tenant_of(lane), needs)
        tenant = lane_tenant(tenant, limits or limits_with_costs(job), task_of(lane))
        return DeferredJob(job, tenant, limits)

    def _failed(self, job: Job, error: BaseException) -> Ended:
        """Fail a job whose limits raised an error: it must not run without them."""
        ending = failure(error, self._limited[job.task])
        return Ended(job, ending, 0, self._engine.time.latest_us())

    def defer(self, waiting: Sequence[DeferredJob]) -> None:
        """Move claimed jobs to other lanes, or defer them until the pause ends."""
        if not waiting:
            return
        self._wakeup.set()  # the jobs behind them may be due
        moved = [
            (deferred.job, deferred.tenant) for deferred in waiting if deferred.tenant is not None
        ]
        if moved:
            move_to_lanes(self._engine, moved, {each.job.id: each.limits for each in waiting})
            self._move_unknown([job for job, _ in moved if not self._knows(job)])
        self._defer_paused([deferred.job for deferred in waiting if deferred.tenant is None])

    def _move_unknown(self, moved: Sequence[Job]) -> None:
        """Move jobs of unknown tasks that wait where some were found, and log the tasks."""
        for lane in {job.lane for job in moved}:
            waiting = waiting_in(self._engine, lane)
            unknown = [row for row in waiting if not self._knows(row)]
            move_to_lanes(self._engine, [(row, _tenant_with_task(row)) for row in unknown])
        places = {(job.lane.queue, task_key(job.task, job.codec)) for job in moved}
        self._moved |= {place for place in places if self._ask_again_us.get(place, 0) < AWAY_US}
        self._log_unknown()

    def _log_unknown(self) -> None:
        """Log a task of a queue once if none of its live workers knows it."""
        now_us = self._engine.time.latest_us()
        due = sorted(place for place in self._moved if self._ask_again_us.get(place, 0) <= now_us)
        workers = live_workers(self._engine) if due else []
        for queue, task in due:
            is_known = task in known_tasks(queue, workers)
            self._moved.remove((queue, task))
            self._ask_again_us[queue, task] = now_us + ASK_EVERY_US if is_known else AWAY_US
            if not is_known:
                log.warning("%s in the queue %s; its jobs wait", unknown_text(task), queue)

    def _defer_paused(self, jobs: Sequence[Job]) -> None:
        """Defer jobs of paused tasks, and others that wait in the same lanes."""
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
            clear(self._engine, lane, paused, self.circuits.probes)

    def _touch(self, lane: Lane, task: str, now_us: int) -> None:
        """Note that jobs of a lane were deferred; drop old notes."""
        lanes = self._touched.setdefault((lane.queue, task), {})
        if len(lanes) >= LANES_MAX:
            lanes = {touched: us for touched, us in lanes.items() if us >= now_us - LATE_US}
            self._touched[lane.queue, task] = lanes
        lanes[lane] = now_us

    def requeue(self) -> None:
        """Requeue jobs that were deferred after their pause had ended; log unknown tasks."""
        if self._moved:
            self._log_unknown()
        self.circuits.check()
        for queue, task in [*self._touched]:
            if task not in self._engine.catalog.settings(queue).paused_tasks:
                since_us = self._engine.time.earliest_us() - LATE_US
                lanes = [lane for lane, us in self._touched[queue, task].items() if us >= since_us]
                requeue(self._engine, lanes, {task}, since_us)
                del self._touched[queue, task]
