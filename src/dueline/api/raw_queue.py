"""Queues without tasks, for other frameworks."""

import json
import random
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Annotated, Any

from dueline.api.connection import Connection
from dueline.core.attempt import Done, Ended, Ending, Failed, GivenBack
from dueline.core.call_options import is_step
from dueline.core.clock import asked_instant_us, asked_span_us, duration_us, to_datetime
from dueline.core.codec import JSON, PAYLOAD_BYTES_MAX, encode_result
from dueline.core.constraints import check_value, integer
from dueline.core.errors import BadInput, LeaseLost
from dueline.core.job import Job
from dueline.core.process_identity import worker_name
from dueline.core.queue_settings import check_queue_name
from dueline.core.store import Extend
from dueline.jobs.queue import EnqueueRequest
from dueline.worker.claimer import Claimer
from dueline.worker.settler import Settler
from dueline.worker.triage import triage
from dueline.workflows.release import park

TASK = "raw"
CLAIM_MAX = 1000


class RawQueue:
    """One queue by hand: put bodies in, claim jobs, say what became of them.

    A job that was claimed is the claimer's until its lease ends; whoever needs longer extends
    it. One that ends without a verdict counts as died on it, and after three such it is dead.
    For one thread; others make their own.
    """

    def __init__(
        self, app: Connection, queue: str, *, lease: timedelta | float | None = None
    ) -> None:
        """Take an application, and a queue's name.

        Args: lease: how long a claim lasts; the queue's own setting by default.

        Raises: BadInput: a name or lease out of range.
        """
        self._queues = app.queues
        self._queue = check_queue_name(queue)
        self._lease_us = None if lease is None else duration_us(lease)
        if self._lease_us is not None and self._lease_us <= 0:
            raise BadInput(f"lease={lease!r} leaves no time.")
        self._claimer = Claimer(app.queues.engine, [queue], worker_name(), lease_us=self._lease_us)
        self._settler = Settler(app.queues.engine, app.tasks, random.Random(), app.hooks)

    def put(
        self,
        bodies: Sequence[bytes],
        *,
        task: str = TASK,
        due: datetime | None = None,
        after: timedelta | float = 0,
        priority: int = 0,
        tenant: str = "",
    ) -> list[str]:
        """Store jobs durably, all in one write; answer their ids.

        Args:
          bodies: JSON. task: the name of what they are for, of your own choice.
          due, after: not before this instant (aware), or so long from now.

        Raises: as `task.enqueue`.
        """
        for body in bodies:
            _check_body(body)
        due_us = None if due is None else asked_instant_us(due, "due")
        if due is None and (wait_us := asked_span_us(after, "after")):
            due_us = self._queues.engine.time.latest_us() + wait_us
        rows = self._queues.enqueue(
            EnqueueRequest(self._queue, task, JSON, bodies, due_us, priority, tenant)
        )
        return [row.id.hex() for row in rows]

    def claim(self, most: int) -> list["Leased"]:
        """Claim jobs that are due, the most urgent first; none where nothing is due.

        Raises: BadInput: `most` is not 1 to 1,000.
        """
        check_value(most, Annotated[int, integer(1, CLAIM_MAX)], "most")
        self._claimer.refresh()
        fit: list[Job] = []
        while len(fit) < most:
            taken = self._claimer.claim(most - len(fit), {})
            if not taken:
                break
            now_us = self._queues.engine.time.latest_us()
            found = triage(taken, self._queues.engine.catalog.settings, now_us)
            self._settler.complete(found.decided)
            self._settler.record_crashes(found.died)
            self._settler.end(found.over)
            steps = [one.job for one in found.fit if is_step(one.job)]
            park(
                self._queues.engine, dict.fromkeys(steps, 0)
            )  # what they are given, only workers tell
            fit += [one.job for one in found.fit if not is_step(one.job)]
        # Marked as started: whoever dies with a job is counted, as where handlers run.
        began_us = self._queues.engine.time.latest_us()
        held = self._extend(fit, self._lease_us)
        return [Leased(self, job, began_us) for job, sure in zip(fit, held, strict=True) if sure]

    def ack(self, leased: Sequence["Leased"]) -> list[str]:
        """End jobs as done, in one call; answer the ids of those whose claims were lost."""
        return self._settle([(one, Done(encode_result(None, one.task))) for one in leased])

    def nack(
        self,
        leased: Sequence["Leased"],
        delay: timedelta | float | None = None,
        *,
        reason: str = "",
    ) -> list[str]:
        """Let jobs be tried again, not before the delay; after 8 attempts they are dead.

        Args: delay: None for one that grows with each attempt. reason: kept as the job's error.

        Returns: as `ack`.
        """
        delay_us = None if delay is None else duration_us(delay)
        failed = Failed("Nack", reason, "", retry=True, retry_after_us=delay_us)
        return self._settle([(one, failed) for one in leased])

    def release(self, leased: Sequence["Leased"]) -> list[str]:
        """Give jobs back, to be claimed again at once; no attempt is spent. Returns: as `ack`."""
        return self._settle([(one, GivenBack()) for one in leased])

    def reject(self, leased: Sequence["Leased"], reason: str) -> list[str]:
        """Carry jobs to the dead, where they are kept and can be retried. Returns: as `ack`."""
        failed = Failed("Rejected", reason, "", retry=False)
        return self._settle([(one, failed) for one in leased])

    def extend(
        self, leased: Sequence["Leased"], lease: timedelta | float | None = None
    ) -> list[str]:
        """Let claims last so long from now on, and never shorter than before. Returns: as `ack`.

        Args: lease: as at the claim by default.
        """
        held = self._extend(
            [one.job for one in leased], self._lease_us if lease is None else duration_us(lease)
        )
        return [one.id for one, sure in zip(leased, held, strict=True) if not sure]

    def _extend(self, jobs: Sequence[Job], lease_us: int | None) -> Sequence[bool]:
        if lease_us is None:
            lease_us = self._queues.engine.catalog.settings(self._queue).lease_us
        until_us = self._queues.engine.time.latest_us() + lease_us
        return self._queues.engine.store.settle(
            [Extend(job, until_us, started=True) for job in jobs]
        )

    def _settle(self, endings: Sequence[tuple["Leased", Ending]]) -> list[str]:
        now_us = self._queues.engine.time.latest_us()
        ended = [Ended(one.job, ending, one.claimed_us, now_us) for one, ending in endings]
        return [job.id.hex() for job in self._settler.settle(ended, [])] if ended else []


class Leased:
    """A job that was claimed. job: its row, as the store has it. claimed_us: since when."""

    __slots__ = ("_queue", "claimed_us", "job")

    def __init__(self, queue: RawQueue, job: Job, claimed_us: int) -> None:
        self._queue = queue
        self.job = job
        self.claimed_us = claimed_us

    def __repr__(self) -> str:
        return f"<Leased {self.id}>"

    @property
    def id(self) -> str:
        """The job's id."""
        return self.job.id.hex()

    @property
    def task(self) -> str:
        """What it is for."""
        return self.job.task

    @property
    def body(self) -> bytes:
        """What was put in."""
        return self.job.body

    @property
    def attempt(self) -> int:
        """Which attempt this is; 1 for the first."""
        return self.job.errors + 1

    @property
    def fence(self) -> int:
        """How often the job has been claimed; only grows."""
        return self.job.fence

    @property
    def due(self) -> datetime:
        """When it was to run."""
        return to_datetime(self.job.due_us)

    def ack(self) -> None:
        """End the job as done. Raises: LeaseLost: somebody else may hold it; nothing changed."""
        self._expect(self._queue.ack([self]))

    def nack(self, delay: timedelta | float | None = None, *, reason: str = "") -> None:
        """Let it be tried again, not before the delay. Raises: as `ack`."""
        self._expect(self._queue.nack([self], delay, reason=reason))

    def release(self) -> None:
        """Give it back, to be claimed again at once; no attempt is spent. Raises: as `ack`."""
        self._expect(self._queue.release([self]))

    def reject(self, reason: str) -> None:
        """Carry it to the dead. Raises: as `ack`."""
        self._expect(self._queue.reject([self], reason))

    def extend(self, lease: timedelta | float | None = None) -> None:
        """Let the claim last so long from now on. Raises: as `ack`."""
        self._expect(self._queue.extend([self], lease))

    def _expect(self, lost: Sequence[str]) -> None:
        if lost:
            raise LeaseLost(f"The claim on job {self.id} was lost.")


def _check_body(body: Any) -> None:  # noqa: ANN401  (from a caller who may err)
    if not isinstance(body, bytes):
        raise BadInput(f"A body is {type(body).__name__}.", hint="Give JSON as bytes.")
    if len(body) > PAYLOAD_BYTES_MAX:
        raise BadInput(f"A body has {len(body)} bytes; {PAYLOAD_BYTES_MAX} are allowed.")
    try:
        json.loads(body)
    except (ValueError, RecursionError) as error:
        raise BadInput("A body is not JSON.", hint="Give JSON as bytes.") from error
