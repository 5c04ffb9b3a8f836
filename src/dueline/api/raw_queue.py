"""A queue without tasks, for other frameworks."""

import json
from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Annotated, Any

from dueline.api.claim_sessions import ClaimSessions, HandedJob, Terms
from dueline.api.connection import Connection
from dueline.core.attempt import Ending, Failed, GivenBack
from dueline.core.clock import asked_instant_us, asked_span_us, duration_us, to_datetime
from dueline.core.codec import JSON, PAYLOAD_BYTES_MAX
from dueline.core.constraints import check_value, integer
from dueline.core.errors import BadInput, LeaseLost
from dueline.core.job import Claim
from dueline.core.queue_settings import check_queue_name
from dueline.jobs.queue import EnqueueRequest

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
        self._terms = Terms("", (self._queue,), lease_us=self._lease_us, is_raw=True)
        self._claims = ClaimSessions(app.queues.engine, app.tasks, app.hooks)

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
        return self._claims.claim(self._terms, most, partial(Leased, self))

    def ack(self, leased: Sequence["Leased"]) -> list[str]:
        """Mark jobs as done.

        Args:
            leased: The claimed jobs.

        Returns:
            The ids of the jobs whose claims were lost.
        """
        return self._settle([(held, self._claims.done(held.job, None)) for held in leased])

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
        return self._settle([(held, failed) for held in leased])

    def release(self, leased: Sequence["Leased"]) -> list[str]:
        """Release jobs without using up an attempt.

        Args:
            leased: The claimed jobs.

        Returns:
            The ids of the jobs whose claims were lost.
        """
        return self._settle([(held, GivenBack()) for held in leased])

    def reject(self, leased: Sequence["Leased"], reason: str) -> list[str]:
        """Move jobs to the dead-letter list.

        Args:
            leased: The claimed jobs.
            reason: Recorded as the error of the jobs.

        Returns:
            The ids of the jobs whose claims were lost.
        """
        failed = Failed("Rejected", reason, "", retry=False)
        return self._settle([(held, failed) for held in leased])

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
        lease_us = self._lease_us if lease is None else duration_us(lease)
        ends_us = self._claims.extend([held.job for held in leased], lease_us)
        return [held.id for held, end_us in zip(leased, ends_us, strict=True) if end_us is None]

    def _settle(self, endings: Sequence[tuple["Leased", Ending]]) -> list[str]:
        lost: list[str] = []
        waiting: dict[Claim, tuple[Leased, Ending]] = {}
        for held, ending in endings:
            # A store may take the same outcome at the same time for a retry (rule U5).
            if held.is_settled or held.job.claim() in waiting:
                lost.append(held.id)
            else:
                waiting[held.job.claim()] = (held, ending)
        if waiting:
            jobs = [(held.job, ending) for held, ending in waiting.values()]
            lost += [job.id.hex() for job in self._claims.settle(jobs)]
            for held, _ in waiting.values():
                held.is_settled = True
        return lost


class Leased:
    """A claimed job.

    Attributes:
        job: Its row in the store.
        body: Its body. That of a workflow step has the arguments that the workflow gives it.
        is_settled: Whether an outcome was reported and answered.
    """

    __slots__ = ("_queue", "body", "is_settled", "job")

    def __init__(self, queue: RawQueue, handed: HandedJob) -> None:
        self._queue = queue
        self.job = handed.job
        self.body = handed.body()
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
