"""A caller's handle on a job."""

import uuid
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Generic, TypeVar

from dueline.core.attempt import read_epitaph
from dueline.core.call_options import tags_of
from dueline.core.clock import Clock, asked_instant_us, asked_span_us, pauses
from dueline.core.codec import decode_result
from dueline.core.errors import BadInput, JobFailed
from dueline.core.job import JobId
from dueline.jobs import progress_records
from dueline.jobs.explain import explain
from dueline.jobs.explanation import Explanation
from dueline.jobs.queue import Found, Queues
from dueline.tasks.progress import Progress

R_co = TypeVar("R_co", covariant=True)


class Job(Generic[R_co]):
    """One call of a task that was enqueued; R is what its handler returns."""

    __slots__ = ("_clock", "_id", "_kind", "_queues")

    def __init__(self, job_id: JobId, queues: Queues, clock: Clock, kind: Any = Any) -> None:  # noqa: ANN401
        """Take the id and the engine. kind: the result's annotated type."""
        self._id = job_id
        self._queues = queues
        self._clock = clock
        self._kind = kind

    def __repr__(self) -> str:
        return f"<Job {self.id}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Job) and other._id == self._id

    def __hash__(self) -> int:
        return hash(self._id)

    @property
    def id(self) -> str:
        """The job's id: 32 hexadecimal digits, in the order of enqueueing."""
        return self._id.hex()

    @property
    def status(self) -> str:
        """The job's state now; at most two reads.

        One of scheduled, ready, running, retrying, done, dead, cancelled, expired, lost.

        Raises: NotFound: no such job, or it ended and nothing was kept of it.
        """
        return self._queues.find(self._id).status

    def result(self, timeout: float | None = None) -> R_co:
        """Wait for the job to end and answer what its handler returned.

        Args: timeout: seconds; None waits as long as it takes, 0 only looks.

        Raises:
          JobFailed: it ended without a result. TimeoutError: it has not ended in time.
          NotFound: it is unknown, or its queue keeps no results.
        """
        for pause_s in pauses(self._clock, timeout):
            found = self._queues.find(self._id)
            if self._is_over(found):
                return self._value(found)
            if pause_s is None:
                break
            self._clock.sleep(pause_s)
        raise TimeoutError(f"The job {self.id} is still {found.status}.")

    async def aresult(self, timeout: float | None = None) -> R_co:  # noqa: ASYNC109  (as `result`)
        """Do as `result` without blocking the loop; each look is taken in another thread."""
        import asyncio  # noqa: PLC0415  (slow to load)

        for pause_s in pauses(self._clock, timeout):
            found = await asyncio.to_thread(self._queues.find, self._id)
            if self._is_over(found):
                return self._value(found)
            if pause_s is None:
                break
            await asyncio.sleep(pause_s)
        raise TimeoutError(f"The job {self.id} is still {found.status}.")

    def _is_over(self, found: Found) -> bool:
        return found.outcome is not None or found.status in ("dead", "expired")

    def _value(self, found: Found) -> R_co:
        outcome = found.outcome
        if found.status == "expired":
            raise JobFailed(f"The job {self.id} is expired: its time was over before it ran.")
        if outcome is None:
            error, _ = read_epitaph(found.row.error if found.row else "")
            raise JobFailed(f"The job {self.id} is dead: {error}")
        if outcome.state != "done":
            why = f"The job {self.id} is {outcome.state}: {outcome.error}"
            raise JobFailed(why.rstrip(": "))
        value: R_co = decode_result(outcome.value, self._kind)
        return value

    @property
    def progress(self) -> Progress | None:
        """How far the job's handler said that it had come; None where it did not, or long ago.

        As it was at most a second ago; kept for a day after the last report.
        """
        return progress_records.read(self._queues.engine.store, self._id)

    def explain(self) -> Explanation:
        """Return the one reason why the job is not running, from the state of its queue now.

        `str(job.explain())` is a sentence for people; `reason` is one word or two, and `facts`
        are the numbers and names that it rests on. A job that is not known is `unknown`. Reads
        up to 10,000 rows of the job's queue: it is for people, not for every call.
        """
        return explain(self._queues, self._id)

    async def aexplain(self) -> Explanation:
        """Do as `explain`, in another thread."""
        import asyncio  # noqa: PLC0415  (slow to load)

        return await asyncio.to_thread(self.explain)

    def cancel(self) -> bool:
        """End the job: at once if it waits; if it runs, ask its handler to stop.

        A handler sees it within two seconds, with `ctx.check_cancelled()` or at its next await;
        one that never looks runs to its end, and then the job is what that end makes of it. It
        is not tried again in any case.

        Returns: True: it has ended. False: it runs, and was asked to stop.

        Raises: NotFound: no such job. Conflict: it is dead or has ended.
        """
        return self._queues.cancel(self._id)

    def reschedule(
        self, *, due: datetime | None = None, after: timedelta | float | None = None
    ) -> None:
        """Let the job be due at another time: at `due`, or `after` so long from now.

        Raises:
          NotFound: no such job. Conflict: it runs, is dead or has ended.
          BadInput: not one of both is given, or it is out of range, or past the job's expiry.
        """
        if (due is None) == (after is None):
            raise BadInput("Not one of due and after is given.", hint="Give one of them.")
        if due is not None:
            at_us = asked_instant_us(due, "due")
        else:
            at_us = self._queues.engine.time.latest_us() + asked_span_us(after, "after")
        self._queues.reschedule(self._id, at_us)

    @property
    def tags(self) -> tuple[str, ...]:
        """The job's tags, sorted; none once it has ended.

        Raises: NotFound: no such job, or it ended and nothing was kept of it.
        """
        row = self._queues.find(self._id).row
        return () if row is None else tags_of(row)

    def change(self, *, priority: int | None = None, tags: Sequence[str] | None = None) -> None:
        """Give the job another priority, or other tags in place of those that it has.

        Raises:
          NotFound: no such job. Conflict: it runs, is dead or has ended.
          BadInput: neither is given, or one is out of range.
        """
        self._queues.change(self._id, priority=priority, tags=tags)

    def retry(self) -> None:
        """Run the job as soon as possible, also when it is dead.

        Raises: NotFound: no such job. Conflict: it runs or has ended.
        """
        self._queues.retry(self._id)


def parse_id(text: str) -> JobId:
    """Read a job's id, with or without dashes.

    Raises: BadInput: it is none.
    """
    try:
        return JobId(uuid.UUID(text).bytes)
    except (ValueError, TypeError, AttributeError) as error:  # the latter two: no text
        raise BadInput(
            f"{text!r} is not a job's id.", hint="Ids have 32 hexadecimal digits."
        ) from error
