"""A queue without tasks, for other frameworks."""

import json
import random
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Annotated, Any

from dueline.api.connection import Connection
from dueline.coordination.worker_registry import Presence, announce
from dueline.core.attempt import Done, Ended, Ending, Failed, GivenBack
from dueline.core.call_options import is_step
from dueline.core.clock import asked_instant_us, asked_span_us, duration_us, to_datetime
from dueline.core.codec import JSON, PAYLOAD_BYTES_MAX, encode_result
from dueline.core.constraints import check_value, integer
from dueline.core.errors import BadInput, LeaseLost
from dueline.core.job import Claim, Job
from dueline.core.process_identity import worker_name
from dueline.core.queue_settings import check_queue_name
from dueline.core.store import Extend
from dueline.jobs.queue import EnqueueRequest
from dueline.worker.cancellations import Cancellations
from dueline.worker.claimer import Claimer
from dueline.worker.settler import Settler
from dueline.worker.triage import triage
from dueline.workflows.release import park

TASK = "raw"
CLAIM_MAX = 1000


class RawQueue:
    """Low-level access to one queue: enqueue bodies, claim jobs and report their outcomes.

    A claimed job belongs to its claimer until the lease ends; extend the lease if you need longer.
    A claim that ends without an outcome counts as a crash, and a job is dead after three crashes.
    A job whose cancellation was requested is cancelled unless it is acked.
    Not thread-safe: use one object per thread.

    Args:
        app: The application.
        queue: Name of the queue.
        lease: Duration of a claim; by default the setting of the queue.

    Raises:
        BadInput: The name or the lease is out of range.
    """

    def __init__(
        self, app: Connection, queue: str, *, lease: timedelta | float | None = None
    ) -> None:
        self._queues = app.queues
        self._queue = check_queue_name(queue)
        self._lease_us = None if lease is None else duration_us(lease)
        if self._lease_us is not None and self._lease_us <= 0:
            raise BadInput(f"`lease` must be more than 0 s (got {lease!r}).", hint="Use 30.")
        self._worker, self._reported_us = worker_name(), 0
        self._since_us = app.queues.engine.time.latest_us()
        self._claimer = Claimer(app.queues.engine, [queue], self._worker, lease_us=self._lease_us)
        self._settler = Settler(app.queues.engine, app.tasks, random.Random(), app.hooks)
        engine = app.queues.engine
        self._cancellations = Cancellations(engine, self._worker, engine.clock)

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
        """Enqueue jobs in one durable write.

        Args:
            bodies: JSON documents as bytes.
            task: Task name of the jobs, free to choose.
            due: Time at which the jobs become due, an aware datetime.
            after: Duration after which they become due, if `due` is not given.
            priority: Priority; larger runs first.
            tenant: Tenant of the jobs.

        Returns:
            The ids of the jobs.

        Raises:
            BadInput: A value is out of range; nothing was stored.
            EnqueueUnknown: The jobs may or may not be stored; see its `jobs`.
            StoreUnavailable: Nothing was stored.
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
        """Claim due jobs, the most urgent first.

        Args:
            most: Maximum number of jobs, 1 to 1,000.

        Returns:
            The claimed jobs; empty if none is due.

        Raises:
            BadInput: `most` is out of range.
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
            steps = [claimed.job for claimed in found.fit if is_step(claimed.job)]
            park(
                self._queues.engine, dict.fromkeys(steps, 0)
            )  # what they are given, only workers tell
            jobs = [claimed.job for claimed in found.fit if not is_step(claimed.job)]
            if ended := self._cancellations.refused(jobs):
                self._settler.settle(ended, [])
            refused = {attempt.job.id for attempt in ended}
            fit += [job for job in jobs if job.id not in refused]
        # Marked as started, so that a crash of this process counts, as in workers.
        began_us = self._queues.engine.time.latest_us()
        held = self._extend(fit, self._lease_us)
        self._report(most, len(fit), began_us)
        return [Leased(self, job, began_us) for job, sure in zip(fit, held, strict=True) if sure]

    def _report(self, most: int, held: int, now_us: int) -> None:
        """Be listed as a worker until three leases after the latest claim.

        It is not registered, since its claims last to their end.
        """
        engine = self._queues.engine
        lease_us = self._lease_us or engine.catalog.settings(self._queue).lease_us
        if now_us - self._reported_us < lease_us:
            return
        presence = Presence(
            self._worker, (self._queue,), (), most, held, self._since_us, now_us,
            engine.time.skew_us(), is_raw=True,
        )  # fmt: skip
        announce(engine.store, presence, version=engine.ids.token(), beat_every_us=lease_us)
        self._reported_us = now_us

    def ack(self, leased: Sequence["Leased"]) -> list[str]:
        """Mark jobs as done.

        Args:
            leased: The claimed jobs.

        Returns:
            The ids of the jobs whose claims were lost.
        """
        return self._settle([(one, Done(encode_result(None, one.task))) for one in leased])

    def nack(
        self,
        leased: Sequence["Leased"],
        delay: timedelta | float | None = None,
        *,
        reason: str = "",
    ) -> list[str]:
        """Retry jobs after a delay; a job is dead after 8 attempts.

        Args:
            leased: The claimed jobs.
            delay: Duration before the retry; None for one that grows with each attempt.
            reason: Recorded as the error of the job.

        Returns:
            The ids of the jobs whose claims were lost.
        """
        delay_us = None if delay is None else duration_us(delay)
        failed = Failed("Nack", reason, "", retry=True, retry_after_us=delay_us)
        return self._settle([(one, failed) for one in leased])

    def release(self, leased: Sequence["Leased"]) -> list[str]:
        """Release jobs without using up an attempt.

        Args:
            leased: The claimed jobs.

        Returns:
            The ids of the jobs whose claims were lost.
        """
        return self._settle([(one, GivenBack()) for one in leased])

    def reject(self, leased: Sequence["Leased"], reason: str) -> list[str]:
        """Move jobs to the dead-letter list.

        Args:
            leased: The claimed jobs.
            reason: Recorded as the error of the jobs.

        Returns:
            The ids of the jobs whose claims were lost.
        """
        failed = Failed("Rejected", reason, "", retry=False)
        return self._settle([(one, failed) for one in leased])

    def extend(
        self, leased: Sequence["Leased"], lease: timedelta | float | None = None
    ) -> list[str]:
        """Extend claims; they never become shorter.

        Args:
            leased: The claimed jobs.
            lease: New duration from now; by default that of the claim.

        Returns:
            The ids of the jobs whose claims were lost.
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
        lost: list[str] = []
        waiting: dict[Claim, tuple[Leased, Ending]] = {}
        for one, ending in endings:
            # A store may take the same outcome at the same time for a retry (rule U5).
            if one.is_settled or one.job.claim() in waiting:
                lost.append(one.id)
            else:
                waiting[one.job.claim()] = (one, ending)
        if waiting:
            ended = [
                Ended(one.job, ending, one.claimed_us, now_us) for one, ending in waiting.values()
            ]
            known = self._cancellations.known_before(ended)
            lost += [job.id.hex() for job in self._settler.settle(ended, [], known)]
            for one, _ in waiting.values():
                one.is_settled = True
        return lost


class Leased:
    """A claimed job.

    Attributes:
        job: Its row in the store.
        claimed_us: Time of the claim, in microseconds UTC.
        is_settled: Whether an outcome was reported and answered.
    """

    __slots__ = ("_queue", "claimed_us", "is_settled", "job")

    def __init__(self, queue: RawQueue, job: Job, claimed_us: int) -> None:
        self._queue = queue
        self.job = job
        self.claimed_us = claimed_us
        self.is_settled = False

    def __repr__(self) -> str:
        return f"<Leased {self.id}>"

    @property
    def id(self) -> str:
        """The id of the job."""
        return self.job.id.hex()

    @property
    def task(self) -> str:
        """The task name of the job."""
        return self.job.task

    @property
    def body(self) -> bytes:
        """The body of the job."""
        return self.job.body

    @property
    def attempt(self) -> int:
        """The number of the attempt, from 1."""
        return self.job.errors + 1

    @property
    def fence(self) -> int:
        """The number of claims of the job; use it as a fencing token."""
        return self.job.fence

    @property
    def due(self) -> datetime:
        """The due time of the job."""
        return to_datetime(self.job.due_us)

    def ack(self) -> None:
        """Mark the job as done.

        Raises:
            LeaseLost: The claim was lost; nothing changed.
        """
        self._expect(self._queue.ack([self]))

    def nack(self, delay: timedelta | float | None = None, *, reason: str = "") -> None:
        """Retry the job after a delay; raises like `ack`."""
        self._expect(self._queue.nack([self], delay, reason=reason))

    def release(self) -> None:
        """Release the job without using up an attempt; raises like `ack`."""
        self._expect(self._queue.release([self]))

    def reject(self, reason: str) -> None:
        """Move the job to the dead-letter list; raises like `ack`."""
        self._expect(self._queue.reject([self], reason))

    def extend(self, lease: timedelta | float | None = None) -> None:
        """Extend the claim; raises like `ack`."""
        self._expect(self._queue.extend([self], lease))

    def _expect(self, lost: Sequence[str]) -> None:
        if lost:
            raise LeaseLost(f"The claim on job {self.id} was lost.")


def _check_body(body: Any) -> None:  # noqa: ANN401  (from a caller who may err)
    if not isinstance(body, bytes):
        raise BadInput(
            f"A body must be bytes (got {type(body).__name__}).", hint="Use JSON as bytes."
        )
    if len(body) > PAYLOAD_BYTES_MAX:
        raise BadInput(f"A body has {len(body)} bytes; {PAYLOAD_BYTES_MAX} are allowed.")
    try:
        json.loads(body)
    except (ValueError, RecursionError) as error:
        raise BadInput("A body is not JSON.", hint="Use JSON as bytes.") from error
