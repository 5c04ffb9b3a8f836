"""The methods of an application that find jobs."""

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any

from dueline.api.connection import Connection
from dueline.api.job_handle import Job, parse_id
from dueline.core.clock import asked_instant_us, asked_span_us
from dueline.core.constraints import check_value, integer
from dueline.core.queue_settings import DEFAULT_QUEUE
from dueline.jobs.claim_order import AHEAD_MAX, next_jobs
from dueline.jobs.event_reader import EventReader

if TYPE_CHECKING:
    from dueline.admin.read_models import Admin


class JobMethods(Connection):
    """The methods of an application that find jobs."""

    def job(self, job_id: str | bytes) -> Job[Any]:
        """Return a handle on a job without reading the store.

        Args:
            job_id: Id of the job: 32 hexadecimal digits, or 16 bytes such as `ctx.job_id`.

        Raises:
            BadInput: `job_id` is not an id.
        """
        return Job(parse_id(job_id), self.queues, self._clock, tasks=self._tasks)

    @property
    def admin(self) -> "Admin":
        """Read models of the store: lists, counts, statistics, explanations."""
        from dueline.admin.read_models import Admin  # noqa: PLC0415  (only people need it)

        return Admin(self.queues)

    def find(self, key: str, *, queue: str = DEFAULT_QUEUE) -> Job[Any] | None:
        """Return the waiting or running job that holds a unique key.

        Args:
            key: The key, with its arguments filled in, such as "hello:ann".
            queue: Queue of the job: each queue has its own keys.

        Returns:
            A handle on the job; None if no such job waits or runs.

        Raises:
            BadInput: The key or the queue's name is invalid.
        """
        row = self.queues.holder(queue, key)
        return None if row is None else Job(row.id, self.queues, self._clock)

    def peek(self, queue: str = DEFAULT_QUEUE, limit: int = 10) -> list[Job[Any]]:
        """Return the next ready jobs of a queue, in starting order.

        This is the order of a worker that serves only this queue, with one slot. Tenants take
        turns, and only a running worker knows whose turn is next. Jobs that a pause or a limit
        holds back are omitted. Nothing is claimed.

        Args:
            queue: Name of the queue.
            limit: Maximum number of jobs, up to 10,000.

        Raises:
            NotFound: There is no such queue.
            BadInput: `limit` is out of range.
        """
        check_value(limit, Annotated[int, integer(1, AHEAD_MAX)], "limit")
        engine = self.queues.engine
        engine.catalog.chosen(queue)
        rows = next_jobs(engine, queue, engine.time.latest_us(), limit=limit)
        return [Job(row.id, self.queues, self._clock) for row in rows]

    def events(
        self,
        queue: str | None = None,
        *,
        since: datetime | timedelta | float | None = None,
        cursor: str | None = None,
    ) -> EventReader:
        """Return a reader of the history of jobs, which can be resumed.

        Its `read()` returns the next events in order, each once, and an empty list if there are
        no more now. Its `cursor` is a string: a reader that is opened with it continues exactly
        after the events that were read.

        Args:
            queue: Name of the queue; by default all.
            since: Time of the first events, or duration before now; by default all that is kept.
            cursor: Where to continue; replaces `since`.

        Raises:
            BadInput: `since` or `cursor` is invalid.
            NotFound: There is no such queue.
        """
        engine = self.queues.engine
        if isinstance(since, datetime):
            since_us = asked_instant_us(since, "since")
        else:
            back_us = None if since is None else asked_span_us(since, "since")
            since_us = 0 if back_us is None else engine.time.latest_us() - back_us
        return EventReader(engine, clock=self._clock, queue=queue, since_us=since_us, cursor=cursor)
