"""Search jobs by state, queue, task, tenant and tag."""

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

from dueline.core.attempt import Attempt
from dueline.core.call_options import tags_of
from dueline.core.clock import DAY_US, SECOND_US
from dueline.core.engine import Engine
from dueline.core.errors import BadInput
from dueline.core.ids import created_us
from dueline.core.job import Job, JobId
from dueline.core.job_status import status_of
from dueline.core.lane import Lane, dead_queue, tenant_of
from dueline.jobs.history import attempts

SCAN_MAX = 100_000
"""Maximum number of rows that one search reads."""

ENDED_STATES = ("done", "cancelled", "expired", "lost")

_PAGE_MAX = 500
_BACK_US = (600 * SECOND_US, 6 * 3600 * SECOND_US, 8 * DAY_US)
"""How far back history is read for ended jobs, until there are enough."""


@dataclass(frozen=True, slots=True)
class JobFilter:
    """A filter of jobs; None matches any.

    state: one of the living states, or "dead"; None for any living. due_before_us: for jobs with a
    row. tag: one of their tags; history keeps none. but: tenants to exclude.
    """

    state: str | None = None
    queue: str | None = None
    task: str | None = None
    tenant: str | None = None
    due_before_us: int | None = None
    tag: str | None = None
    but: tuple[str, ...] = ()

    def fits(self, job: Job, now_us: int) -> bool:
        """Return whether a job with a row matches; of its lane only the tenant is checked."""
        return (
            not job.outcome
            and self.tenant in (None, tenant_of(job.lane))
            and self.task in (None, job.task)
            and self.state in (None, status_of(job, now_us))
            and (self.due_before_us is None or job.due_us < self.due_before_us)
            and (self.tag is None or self.tag in tags_of(job))
        )


class Rows(NamedTuple):
    """Jobs with a row, by time. more: other jobs match. is_capped: not all rows were read."""

    jobs: list[Job]
    more: bool
    is_capped: bool


class Past(NamedTuple):
    """Attempts that ended, the latest first; other fields as in Rows."""

    attempts: list[Attempt]
    more: bool
    is_capped: bool


class _Budget:
    """The number of rows that a search may still read."""

    def __init__(self, rows: int) -> None:
        self.left = rows


def search(
    engine: Engine,
    like: JobFilter,
    *,
    limit: int,
    most: int = SCAN_MAX,
    leave_out: Callable[[Lane], bool] = lambda _: False,
) -> Rows:
    """Find jobs that have a row, the earliest `at` first.

    Args: most: maximum number of rows to read. leave_out: returns whether to skip a lane.

    Raises: NotFound: the queue does not exist.
    """
    now_us = engine.time.latest_us()
    budget = _Budget(most)
    until_us = now_us if like.state == "ready" else None
    page = min(limit + 1, _PAGE_MAX)
    rows = heapq.merge(
        *(
            _lane_rows(engine, lane, until_us, page, budget)
            for lane in lanes_like(engine, like)
            if not leave_out(lane)
        ),
        key=lambda job: (job.at_us, job.id),
    )
    found = list(
        islice(
            (job for job in rows if like.fits(job, now_us)),
            limit + 1,
        )
    )
    return Rows(found[:limit], more=len(found) > limit, is_capped=budget.left <= 0)


def lanes_like(engine: Engine, like: JobFilter) -> Iterator[Lane]:
    """Yield the lanes that may have matching jobs.

    Raises: NotFound: the queue does not exist.
    """
    for name in engine.catalog.chosen(like.queue):
        for lane in engine.lanes_of(dead_queue(name) if like.state == "dead" else name):
            tenant = tenant_of(lane)
            if like.tenant in (None, tenant) and tenant not in like.but:
                yield lane


def _lane_rows(
    engine: Engine, lane: Lane, until_us: int | None, page_size: int, budget: _Budget
) -> Iterator[Job]:
    after = None
    while budget.left > 0:
        page = engine.store.scan(lane, after=after, until_us=until_us, limit=page_size)
        budget.left -= max(1, len(page.jobs))
        yield from page.jobs
        after = page.after
        if after is None:
            return


def search_ended(engine: Engine, like: JobFilter, *, limit: int, most: int = SCAN_MAX) -> Past:
    """Find ended jobs in the history of their queues, the latest first.

    A job that was cancelled while it waited has no attempt, so it is not found.

    Raises: NotFound: the queue does not exist.
    """
    if like.tag is not None:
        raise BadInput("Ended jobs cannot be searched by tag: history has no tags.")
    names = engine.catalog.chosen(like.queue)
    now_us = engine.time.latest_us()
    for back_us in _BACK_US:
        read = 0
        found: list[Attempt] = []
        for one in islice(history_of(engine, names, now_us - back_us), most):
            read += 1
            if (
                one.outcome == like.state
                and like.task in (None, one.task)
                and like.tenant in (None, one.tenant)
            ):
                found.append(one)
        if len(found) > limit or read == most:
            break
    found.sort(key=lambda one: one.ended_us, reverse=True)
    return Past(found[:limit], more=len(found) > limit, is_capped=read == most)


def attempts_of(
    engine: Engine, job_id: JobId, queue: str | None, *, limit: int, most: int = SCAN_MAX
) -> Past:
    """Find the attempts of one job, the latest first.

    Args: queue: its living queue, if known; otherwise all are searched.
    """
    names = engine.catalog.chosen(queue)
    wanted = job_id.hex()
    read = 0
    found: list[Attempt] = []
    for one in islice(history_of(engine, names, created_us(job_id)), most):
        read += 1
        if one.job == wanted:
            found.append(one)
    found.sort(key=lambda one: one.ended_us, reverse=True)
    return Past(found[:limit], more=len(found) > limit, is_capped=read == most)


def history_of(
    engine: Engine, names: Sequence[str], since_us: int, *, everything: bool = True
) -> Iterator[Attempt]:
    """Yield the attempts of some queues since a timestamp, as `attempts` does."""
    for name in names:
        shards = engine.catalog.settings(name).shards_read
        yield from attempts(engine.store, name, shards, since_us=since_us, everything=everything)
