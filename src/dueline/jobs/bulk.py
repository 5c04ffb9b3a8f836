"""Changes to many jobs.

Each page of jobs is changed by itself. If a call is interrupted, the changed jobs stay changed, and
a repeat continues with the rest.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import reduce
from itertools import chain
from typing import NamedTuple

from dueline.core.clock import Clock
from dueline.core.engine import Engine
from dueline.core.errors import BadInput, Conflict, NotFound
from dueline.core.features import SECTIONS
from dueline.core.job import Job
from dueline.core.job_status import status_of
from dueline.core.lane import dead_queue, living_queue
from dueline.core.pagination import parts_of
from dueline.core.store import Drop, Group, Row
from dueline.core.validation import check_due
from dueline.jobs import orders
from dueline.jobs.completion import finish
from dueline.jobs.counts import Counts, count
from dueline.jobs.group_cancellation import advance
from dueline.jobs.history import row_of_note
from dueline.jobs.parked_functions import may_have_begun
from dueline.jobs.queue import Queues
from dueline.tasks import sections
from dueline.workflows.records import Layouts

PAGE = 500
COUNT_EVERY_S = 0.5
_NOT_RETRIED = ("running", "paused", "expired")
COUNT_SHARE = 5
"""Waiting for an empty queue spends at most 1/COUNT_SHARE of the time on counting its jobs."""


class BulkResult(NamedTuple):
    """What became of a page of jobs.

    Attributes:
      done: They were changed.
      asked: They run, and their handlers were asked to stop.
      left: They ended, or were changed by another process, before; or they cannot be changed so.
    """

    done: int = 0
    asked: int = 0
    left: int = 0

    def plus(self, other: "BulkResult") -> "BulkResult":
        """Add the result of another page."""
        return BulkResult(*(mine + its for mine, its in zip(self, other, strict=True)))


def sum_of(pages: Iterable[BulkResult]) -> BulkResult:
    """Run a change of jobs, and add its pages."""
    return reduce(BulkResult.plus, pages, BulkResult())


def cancel_all(queues: Queues, rows: Iterable[Job]) -> Iterator[BulkResult]:
    """End waiting jobs, and request the end of running ones, page by page."""
    for page in parts_of(rows, PAGE):
        now_us = queues.engine.time.latest_us()
        alive = [row for row in page if status_of(row, now_us) != "dead"]
        running = [
            row for row in alive if status_of(row, now_us) == "running" or may_have_begun(row)
        ]
        waiting = [row for row in alive if row not in running]
        changed = BulkResult(left=len(page)).plus(_cancel_waiting(queues, waiting, now_us))
        for row in running:
            changed = changed.plus(_cancel_running(queues, row))
        yield changed


def _cancel_waiting(queues: Queues, rows: Sequence[Job], now_us: int) -> BulkResult:
    ends = [queues.cancelled(row, now_us) for row in rows if not row.outcome]
    done = sum(finish(queues.engine.store, ends)) if ends else 0
    advance(queues.engine, Layouts(), [job for job, _ in ends])
    return BulkResult(done=done, left=-done)


def _cancel_running(queues: Queues, row: Job) -> BulkResult:
    try:
        has_ended = queues.cancel(row.id)
    except (NotFound, Conflict):  # the job ended first
        return BulkResult()
    return BulkResult(done=1, left=-1) if has_ended else BulkResult(asked=1, left=-1)


def retry_all(queues: Queues, rows: Iterable[Job]) -> Iterator[BulkResult]:
    """Run waiting or dead jobs as soon as possible, page by page."""
    for page in parts_of(rows, PAGE):
        now_us = queues.engine.time.latest_us()
        retried = [row for row in page if status_of(row, now_us) not in _NOT_RETRIED]
        done = queues.retry_all(retried)
        yield BulkResult(done=done, left=len(page) - done)


def reschedule_all(queues: Queues, rows: Iterable[Job], at_us: int) -> Iterator[BulkResult]:
    """Change when waiting jobs are due, page by page; those that would expire before are left.

    Raises:
        BadInput: The time is out of range; nothing was changed.
    """
    check_due(at_us, now_us=queues.engine.time.latest_us())
    for page in parts_of(rows, PAGE):
        done = sum(_is_rescheduled(queues, row, at_us) for row in page)
        yield BulkResult(done=done, left=len(page) - done)


def _is_rescheduled(queues: Queues, row: Job, at_us: int) -> bool:
    try:
        queues.reschedule(row.id, at_us)
    except (NotFound, Conflict, BadInput):  # the job runs, ended first, or would never run
        return False
    return True


def drop_dead(engine: Engine, rows: Iterable[Job], note: str = "") -> Iterator[BulkResult]:
    """Delete dead-letter jobs, page by page; they cannot be retried any more.

    note: who deletes them by hand, for their history.
    """
    for page in parts_of(rows, PAGE):
        orders.hurry(engine, page)
        groups = [Group([Drop(row)], rows=_noted(engine, row, note)) for row in page]
        done = sum(engine.store.together(groups))
        if engine.catalog.features.has(SECTIONS):
            sections.withdraw(engine.store, page)
        orders.advance(engine, page)
        yield BulkResult(done=done, left=len(page) - done)


def _noted(engine: Engine, row: Job, note: str) -> Sequence[Row]:
    if not note or engine.catalog.settings(living_queue(row.lane.queue)).history == "off":
        return ()
    return [row_of_note(row, engine.time.latest_us(), note)]


def delete_dead(queues: Queues, rows: Iterable[Job]) -> Iterator[BulkResult]:
    """Delete dead-letter jobs by hand, page by page."""
    return drop_dead(queues.engine, rows, queues.did("deleted"))


def waiting_in(engine: Engine, queue: str) -> Iterator[Job]:
    """Yield the waiting jobs of a queue: all except those that run or have ended."""
    for row in engine.jobs_of(queue):
        if not row.outcome and status_of(row, engine.time.latest_us()) != "running":
            yield row


def dead_before(engine: Engine, queue: str | None, before_us: int) -> Iterator[Job]:
    """Yield the jobs that died before a time, of one queue or of all.

    Raises:
        NotFound: There is no such queue.
    """
    names = engine.catalog.chosen(queue)
    rows = chain.from_iterable(engine.jobs_of(dead_queue(name)) for name in names)
    return (row for row in rows if not row.outcome and row.at_us < before_us)


def drain(
    engine: Engine,
    queue: str,
    clock: Clock,
    *,
    timeout_us: int | None,
    tell: Callable[[Counts], None],
) -> Counts:
    """Wait until a queue holds no waiting or running job; return the last count.

    Args:
        engine: The engine.
        queue: The queue.
        clock: The machine's clock.
        timeout_us: Maximum duration.
        tell: Called with each count.

    Returns:
        What was left when the time was over; otherwise a count without live jobs.
    """
    began_us = clock.monotonic_us()
    while True:
        asked_us = clock.monotonic_us()
        counts = count(engine, queue, (), whole=True)
        tell(counts)
        now_us = clock.monotonic_us()
        if not counts.living():
            return counts
        if timeout_us is not None and now_us - began_us >= timeout_us:
            return counts
        wait_s = max(COUNT_EVERY_S, COUNT_SHARE * (now_us - asked_us) / 1e6)
        if timeout_us is not None:
            wait_s = min(wait_s, (began_us + timeout_us - now_us) / 1e6)
        clock.sleep(wait_s)
