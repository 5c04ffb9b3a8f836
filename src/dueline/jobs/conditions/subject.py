"""The job that is explained, with what is read once for all its conditions."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

from dueline.coordination.worker_registry import (
    BEATS_A_LEASE,
    Presence,
    live_workers,
    stopped_workers,
)
from dueline.core.clock import SECOND_US
from dueline.core.engine import Engine
from dueline.core.job import Job
from dueline.core.lane import living_queue
from dueline.core.queue_settings import QueueSettings
from dueline.jobs.explanation import Condition, when


@dataclass(frozen=True)
class Subject:
    """A job to explain.

    Attributes:
        engine: The engine.
        job: Its row.
        now_us: The current time, the same for all conditions.
        wait_of: Returns what a durable function waits for; None for other jobs.
    """

    engine: Engine
    job: Job
    now_us: int
    wait_of: Callable[["Subject"], Condition | None] = lambda _: None

    @property
    def queue(self) -> str:
        """Its queue."""
        return living_queue(self.job.lane.queue)

    @cached_property
    def settings(self) -> QueueSettings:
        """The settings of its queue as they are now."""
        self.engine.catalog.forget(self.queue)
        return self.engine.catalog.settings(self.queue)

    @cached_property
    def live(self) -> Sequence[Presence]:
        """The live workers of all queues, by id."""
        return live_workers(self.engine)

    @cached_property
    def serving(self) -> Sequence[Presence]:
        """The live workers of its queue, by id."""
        return [worker for worker in self.live if self.queue in worker.queues]

    @cached_property
    def stopped(self) -> dict[str, int]:
        """Workers of this machine whose processes are stopped, with their numbers."""
        return stopped_workers(self.engine.store)

    def silence_of(self, worker: Presence) -> str:
        """Return since when there is no word from a worker, in words; empty if it sends some."""
        every_us = self.settings.lease_us // BEATS_A_LEASE
        late_us = self.engine.time.earliest_us() - worker.beat_us - every_us
        process = self.stopped.get(worker.worker)
        since = f"no word from it since {when(worker.beat_us, self.now_us)}"
        if process is not None:
            return f"its process {process} here is stopped (`kill -CONT {process}`), {since}"
        return since if late_us > max(every_us // 4, SECOND_US // 10) else ""

    def can_claim(self, worker: Presence) -> bool:
        """Return whether a worker claims jobs of the queue now, as far as is known."""
        return worker.is_claiming and not (worker.has_lost_all or self.silence_of(worker))

    @cached_property
    def able(self) -> Sequence[Presence]:
        """The live workers that claim jobs of its queue and can run it."""
        return [
            worker for worker in self.serving if self.can_claim(worker) and worker.can_run(self.job)
        ]
