"""The methods of an application that find jobs."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any

from dueline.api.code_changes import acting, recorded_change
from dueline.api.connection import Connection
from dueline.api.handle import twin
from dueline.api.job_handle import Job, parse_id
from dueline.core.clock import asked_instant_us, asked_span_us
from dueline.core.constraints import check_value, integer
from dueline.core.queue_settings import DEFAULT_QUEUE
from dueline.jobs.claim_order import AHEAD_MAX, next_jobs
from dueline.jobs.event_reader import EventReader

if TYPE_CHECKING:
    from dueline.admin.read_models import Admin


@dataclass(frozen=True, slots=True)
class MovedJobs:
    """What a move of jobs to another queue did, or would do.

    Attributes:
        moved: Number of jobs that were moved.
        left: Numbers of jobs that were left, by the reason: "running", "ended", "expired",
            "elsewhere", "there", "order key", "unique key", "stopped", "delivery", "unreadable",
            "quota" or "changed".
    """

    moved: int
    left: Mapping[str, int]


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

    def move_jobs(self, filter: str, *, to: str, dry_run: bool = False) -> MovedJobs:  # noqa: A002
        """Move the waiting jobs of a queue to another one.

        Their ids, times, priorities, tenants, attempts and unique keys stay. If the call is
        interrupted, repeat it within 24 hours: it continues, and moves no job twice.

        Args:
            filter: Which jobs, as on the dashboard, with their queue, such as "queue:mail tag:big".
            to: Name of the queue to move them to, which exists.
            dry_run: Only count the jobs. Quotas of the new queue are not asked.

        Raises:
            NotFound: A queue does not exist.
            BadInput: The filter cannot be read, or names no queue, the same one, or ended jobs.
            Conflict: Another process runs the same change.
        """
        from dueline.admin.operations import move_run  # noqa: PLC0415  (slow to load)

        run, moves = move_run(acting(self.queues), self.admin.filter(filter), to)
        if dry_run:
            moves.preview(run.matching())
        else:
            with recorded_change(self.queues, f"move to {to}", filter):
                for _ in run.run(moves.move_all):
                    pass
        return MovedJobs(moves.moved, dict(moves.left))

    amove_jobs = twin(move_jobs)

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
