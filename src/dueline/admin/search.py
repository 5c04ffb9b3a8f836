"""Search jobs by state, queue, task, tenant, tag, priority, error and worker."""

import heapq
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, groupby, islice
from operator import itemgetter
from typing import NamedTuple

from dueline.core.attempt import Attempt, read_epitaph
from dueline.core.call_options import tags_of
from dueline.core.engine import Engine
from dueline.core.ids import created_us
from dueline.core.job import Job, JobId
from dueline.core.job_status import status_of
from dueline.core.lane import LIMIT_MARK, Lane, dead_queue, tenant_of
from dueline.core.pagination import LANES_AT_ONCE, PAGES_AT_ONCE, first_of_each, parts_of, scan_each
from dueline.core.retry import is_uncertain
from dueline.core.store import JobPage
from dueline.jobs.history import attempts, is_end

SCAN_MAX = 100_000
"""Maximum number of rows that one search reads."""

ENDED_STATES = ("done", "cancelled", "expired", "lost")

ENDED = "ended"
"""In place of a state: any of ENDED_STATES, or an attempt that made the job a dead-letter job."""

IN_HISTORY = (*ENDED_STATES, ENDED)
"""States whose jobs are listed from the history."""

_ENDS = frozenset({*ENDED_STATES, "dead"})

_PAGE_MAX = 500
Place = tuple[int, str]
"""Where a page of jobs ends: the time and the id of its last job."""

_START: Place = (0, "")
_NO_ID = "0" * 32


@dataclass(frozen=True, slots=True)
class JobFilter:
    """A filter of jobs; None matches any.

    state: one of the living states, or "dead"; None for any living. due_before_us: for jobs with a
    row. since_us, until_us: when an ended job ended, the end excluded. tag: one of their tags. but:
    tenants to exclude. priority_min, priority_max: both inclusive. error: a part of the error, in
    any case. worker: the first characters of the worker's id. text: a part of the task or the
    error, or the first digits of the id. In a task, * stands for any characters.
    is_uncertain: only dead jobs with that verdict; set it by the state "uncertain".
    """

    state: str | None = None
    queue: str | None = None
    task: str | None = None
    tenant: str | None = None
    due_before_us: int | None = None
    tag: str | None = None
    but: tuple[str, ...] = ()
    priority_min: int | None = None
    priority_max: int | None = None
    error: str | None = None
    worker: str | None = None
    text: str | None = None
    since_us: int | None = None
    until_us: int | None = None
    is_uncertain: bool = False

    def __post_init__(self) -> None:
        """Take the state "uncertain" as dead with that verdict."""
        if self.state == "uncertain":
            object.__setattr__(self, "state", "dead")
            object.__setattr__(self, "is_uncertain", True)

    def fits(self, job: Job, now_us: int) -> bool:
        """Return whether a job with a row matches; of its lane not the queue is checked."""
        return (
            not job.outcome
            and self.since_us is None
            and self.until_us is None
            and self.tenant in (None, tenant_of(job.lane))
            and (self.due_before_us is None or job.due_us < self.due_before_us)
            and self._fits(job.task, job.lane.priority, read_epitaph(job.error)[0], job.worker)
            and (
                self.text is None
                or self._has_text(job.id.hex(), job.task, read_epitaph(job.error)[0])
            )
            and self.state in (None, status_of(job, now_us))
            and (not self.is_uncertain or is_uncertain(job.error))
            and (self.tag is None or self.tag in tags_of(job))
        )

    def fits_attempt(self, attempt: Attempt) -> bool:
        """Return whether an ended attempt matches."""
        return (
            (attempt.outcome == self.state or (self.state == ENDED and attempt.outcome in _ENDS))
            and (self.since_us is None or attempt.ended_us >= self.since_us)
            and (self.until_us is None or attempt.ended_us < self.until_us)
            and (self.tag is None or self.tag in attempt.tags.split(LIMIT_MARK))
            and self.tenant in (None, attempt.tenant)
            and (self.due_before_us is None or attempt.due_us < self.due_before_us)
            and self._fits(attempt.task, attempt.priority, attempt.error, attempt.worker)
            and (self.text is None or self._has_text(attempt.job, attempt.task, attempt.error))
        )

    def _fits(self, task: str, priority: int, error: str, worker: str) -> bool:
        return (
            (self.task is None or is_like(self.task, task))
            and (self.priority_min is None or priority >= self.priority_min)
            and (self.priority_max is None or priority <= self.priority_max)
            and (self.error is None or self.error.casefold() in error.casefold())
            and (self.worker is None or worker.startswith(self.worker))
        )

    def _has_text(self, job_id: str, task: str, error: str) -> bool:
        text = (self.text or "").casefold()
        return text in task.casefold() or text in error.casefold() or job_id.startswith(text)

    def may_be_in(self, lane: Lane) -> bool:
        """Return whether a lane may have matching jobs; its queue is not checked."""
        tenant = tenant_of(lane)
        return (
            self.tenant in (None, tenant)
            and tenant not in self.but
            and (self.priority_min is None or lane.priority >= self.priority_min)
            and (self.priority_max is None or lane.priority <= self.priority_max)
        )


def is_like(pattern: str, text: str) -> bool:
    """Return whether a string matches a pattern, in which * stands for any characters."""
    return pattern == text or ("*" in pattern and _regex(pattern).fullmatch(text) is not None)


@lru_cache(maxsize=64)
def _regex(pattern: str) -> re.Pattern[str]:
    return re.compile(".*".join(map(re.escape, pattern.split("*"))), re.DOTALL)


class Rows(NamedTuple):
    """Jobs with a row, by time. more: other jobs match. is_capped: not all rows were read.

    stopped: the place up to which all rows were read, if more can be read after it.
    """

    jobs: list[Job]
    more: bool
    is_capped: bool
    stopped: Place | None = None


class Past(NamedTuple):
    """Attempts that ended, the latest first; other fields as in Rows.

    since_us: if not all were read: those that ended from this time on were, and can be read on.
    """

    attempts: list[Attempt]
    more: bool
    is_capped: bool
    since_us: int = 0


class Budget:
    """The number of rows that a search may still read, and until when."""

    def __init__(self, engine: Engine, rows: int, within_us: int | None) -> None:
        self._clock, self._rows = engine.clock, rows
        self.stops: list[Place] = []  # one for each lane that was not read to its end
        self._until_us = None if within_us is None else self._clock.monotonic_us() + within_us

    def spend(self, rows: int) -> None:
        """Count rows that were read; a read without rows counts as one."""
        self._rows -= max(1, rows)

    @property
    def is_spent(self) -> bool:
        """Whether nothing more may be read."""
        is_late = self._until_us is not None and self._clock.monotonic_us() > self._until_us
        return is_late or self._rows <= 0


def search(
    engine: Engine,
    like: JobFilter,
    *,
    limit: int,
    most: int = SCAN_MAX,
    leave_out: Callable[[Lane], bool] = lambda _: False,
    after: Place | None = None,
    within_us: int | None = None,
) -> Rows:
    """Find jobs that have a row, the earliest `at` first.

    Args: most: maximum number of rows to read. leave_out: returns whether to skip a lane.
      after: only jobs after this place. within_us: maximum time of reading.

    Raises: NotFound: the queue does not exist.
    """
    now_us = engine.time.latest_us()
    budget = Budget(engine, most, within_us)
    until_us = now_us if like.state == "ready" else None
    begin = None if after is None else (after[0], JobId(bytes.fromhex(after[1])))
    lanes = [place for place in _places(engine, like, now_us) if not leave_out(place[1])]
    begun: list[Iterator[Job]] = []
    matching_us: list[int] = []
    # Jobs that may be due come first, by themselves.
    by_time = (list(group) for _, group in groupby(lanes, key=lambda place: place[0] > 0))
    for part in chain.from_iterable(parts_of(group, LANES_AT_ONCE) for group in by_time):
        begin_us = part[0][0]  # no job in these lanes, and in later ones, is due earlier
        if until_us is not None and begin_us > until_us:
            break
        if sum(at_us < begin_us for at_us in matching_us) > limit:
            break
        is_on = begin_us > (after or _START)[0]  # a repeat makes progress
        if begun and budget.is_spent and is_on:
            budget.stops.append((begin_us, _NO_ID))
            break
        size = min(limit + 1, _PAGE_MAX, 4 + 4 * limit // len(part))  # about a lane's share
        places = [(lane, begin) for _, lane in part]
        pages = scan_each(engine.store, places, until_us=until_us, limit=size)
        for (lane, _), page in zip(places, pages, strict=True):
            budget.spend(len(page.jobs))
            matching_us += (job.at_us for job in page.jobs if like.fits(job, now_us))
            begun.append(_lane_rows(engine, lane, budget, page, until_us=until_us, size=size))
    rows = heapq.merge(*begun, key=lambda job: (job.at_us, job.id))
    jobs = list(islice((job for job in rows if like.fits(job, now_us)), limit + 1))
    stopped = min(budget.stops, default=None)
    if stopped is not None:
        jobs = [job for job in jobs if (job.at_us, job.id.hex()) <= stopped]
    is_on = stopped is not None and stopped > (after or _START)
    return Rows(
        jobs[:limit],
        more=len(jobs) > limit,
        is_capped=budget.is_spent,
        stopped=stopped if is_on else None,
    )


def _places(engine: Engine, like: JobFilter, now_us: int) -> list[tuple[int, Lane]]:
    """Return the lanes that may have matching jobs in the order of when these may be due."""
    earliest: dict[Lane, int] = {}
    for name in engine.catalog.chosen(like.queue):
        queue = dead_queue(name) if like.state == "dead" else name
        for begins in engine.begins_of(queue, now_us=now_us):
            for lane, begin_us in begins.items():
                if like.may_be_in(lane):
                    earliest[lane] = min(begin_us, earliest.get(lane, begin_us))
    return sorted(((begin_us, lane) for lane, begin_us in earliest.items()), key=itemgetter(0))


def count_like(
    engine: Engine, like: JobFilter, *, most: int = SCAN_MAX, within_us: int | None = None
) -> tuple[int, bool]:
    """Count the jobs with a row that match; also return whether not all were read.

    Args: within_us: maximum time of reading.

    Raises: NotFound: the queue does not exist.
    """
    now_us = engine.time.latest_us()
    budget = Budget(engine, most, within_us)
    number, size = 0, _PAGE_MAX // 2
    for part in parts_of(lanes_like(engine, like), PAGES_AT_ONCE):
        for lane, page in first_of_each(engine.store, part, limit=size):
            budget.spend(len(page.jobs))
            rows = _lane_rows(engine, lane, budget, page, until_us=None, size=size)
            number += sum(1 for row in rows if like.fits(row, now_us))
            if budget.is_spent:
                return number, True
    return number, False


def lanes_like(engine: Engine, like: JobFilter) -> Iterator[Lane]:
    """Yield the lanes that may have matching jobs.

    Raises: NotFound: the queue does not exist.
    """
    for name in engine.catalog.chosen(like.queue):
        for lane in engine.lanes_of(dead_queue(name) if like.state == "dead" else name):
            if like.may_be_in(lane):
                yield lane


def _lane_rows(
    engine: Engine, lane: Lane, budget: Budget, page: JobPage, *, until_us: int | None, size: int
) -> Iterator[Job]:
    """Yield rows from the first page on, which is read always: so a repeat makes progress.

    Args: size: of the first page; each later one is four times as large as the one before.
    """
    while True:
        yield from page.jobs
        after = page.after
        if after is None:
            return
        if budget.is_spent:
            break
        size = min(4 * size, _PAGE_MAX)
        page = engine.store.scan(lane, after=after, until_us=until_us, limit=size)
        budget.spend(len(page.jobs))
    budget.stops.append((after[0], after[1].hex()))


def attempts_of(
    engine: Engine,
    job_id: JobId,
    queue: str | None,
    *,
    limit: int,
    most: int = SCAN_MAX,
    since_us: int | None = None,
    until_us: int | None = None,
) -> Past:
    """Find the attempts of one job, the latest first.

    Args: queue: its living queue, if known; otherwise all are searched. since_us, until_us: only
      attempts that ended in this period; by default since the job was created.
    """
    names = engine.catalog.chosen(queue)
    wanted = job_id.hex()
    read = 0
    attempts: list[Attempt] = []
    begin_us = created_us(job_id) if since_us is None else since_us
    for attempt in islice(history_of(engine, names, begin_us, until_us=until_us), most):
        read += 1
        if attempt.job == wanted:
            attempts.append(attempt)
    attempts.sort(key=lambda attempt: attempt.ended_us, reverse=True)
    return Past(attempts[:limit], more=len(attempts) > limit, is_capped=read == most)


def history_of(
    engine: Engine,
    names: Sequence[str],
    since_us: int,
    *,
    until_us: int | None = None,
) -> Iterator[Attempt]:
    """Yield all events of some queues since a timestamp, as `attempts` does."""
    for name in names:
        shards = engine.catalog.settings(name).shards_read
        yield from attempts(
            engine.store, name, shards, since_us=since_us, everything=True, until_us=until_us
        )


def ends_of(engine: Engine, names: Sequence[str], since_us: int) -> Iterator[Attempt]:
    """Yield the attempts of some queues that ended, and the jobs that expired without one."""
    return filter(is_end, history_of(engine, names, since_us))
