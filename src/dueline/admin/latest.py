"""Search dead-letter jobs, the latest first.

Stores read lanes in the order of time, so lanes are read backwards in windows: first the last
second, then windows that are eight times as long as the one before.
"""

import heapq
from collections import defaultdict
from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import Final, NamedTuple

from dueline.admin.search import SCAN_MAX, Budget, JobFilter, Place, Rows, lanes_like
from dueline.core.clock import SECOND_US
from dueline.core.engine import Engine
from dueline.core.job import Job, JobId
from dueline.core.lane import Lane, living_queue
from dueline.core.pagination import LANES_AT_ONCE, parts_of, scan_each
from dueline.core.store import JobPage

_WINDOW_US: Final = SECOND_US
_GROWTH: Final = 8
_PAGE: Final = 500
_LAST_ID: Final = JobId(b"\xff" * 16)
_place_of = attrgetter("at_us", "id")


class _Period(NamedTuple):
    """When the jobs of a lane died: after `since_us`, up to `until_us`."""

    since_us: int
    until_us: int


def search_latest(
    engine: Engine,
    like: JobFilter,
    *,
    limit: int,
    most: int = SCAN_MAX,
    before: Place | None = None,
    within_us: int | None = None,
) -> Rows:
    """Find dead-letter jobs, those that died last first.

    Args: most: number of rows after which no further window is read. before: only jobs that died
      before this place. within_us: the same, in time.

    Raises: NotFound: the queue does not exist.
    """
    now_us = engine.time.latest_us()
    budget = Budget(engine, most, within_us)
    end = (now_us, _LAST_ID) if before is None else (before[0], JobId(bytes.fromhex(before[1])))
    jobs: list[Job] = []
    stopped: int | None = None
    for rows, since_us in _windows(engine, _days_of(engine, like), end, budget):
        jobs += (row for row in rows if _place_of(row) < end and like.fits(row, now_us))
        if len(jobs) > limit:
            break
        if budget.is_spent:
            stopped = since_us
            break
    latest = heapq.nlargest(limit + 1, jobs, key=_place_of)
    rest = None if stopped is None else (stopped, _LAST_ID.hex())
    return Rows(latest[:limit], len(latest) > limit, budget.is_spent, rest)


def _days_of(engine: Engine, like: JobFilter) -> Sequence[tuple[_Period, list[Lane]]]:
    """Return the lanes that may have matching jobs by the period of their buckets, latest first."""
    days: dict[_Period, list[Lane]] = defaultdict(list)
    for lane in lanes_like(engine, like):
        width_us = engine.catalog.settings(living_queue(lane.queue)).width_us
        days[_Period(lane.bucket * width_us - 1, (lane.bucket + 1) * width_us - 1)].append(lane)
    return sorted(days.items(), key=lambda day: day[0].until_us, reverse=True)


def _windows(
    engine: Engine,
    days: Sequence[tuple[_Period, list[Lane]]],
    end: tuple[int, JobId],
    budget: Budget,
) -> Iterator[tuple[Sequence[Job], int]]:
    """Yield the rows of all lanes up to `end` window by window, and since when they were read."""
    for period, lanes in days:
        until_us, width_us = min(period.until_us, end[0]), _WINDOW_US
        while until_us > period.since_us:
            since_us = max(period.since_us, until_us - width_us)
            yield list(_rows(engine, lanes, since_us, until_us, budget)), since_us
            until_us, width_us = since_us, _GROWTH * width_us


def _rows(
    engine: Engine, lanes: Sequence[Lane], since_us: int, until_us: int, budget: Budget
) -> Iterator[Job]:
    """Yield the rows of lanes in a window."""
    places: list[tuple[Lane, tuple[int, JobId] | None]] = [
        (lane, (since_us, _LAST_ID)) for lane in lanes
    ]
    while places:
        pages: list[JobPage] = []
        for part in parts_of(places, LANES_AT_ONCE):
            pages += scan_each(engine.store, part, until_us=until_us, limit=_PAGE)
        for page in pages:
            budget.spend(len(page.jobs))
            yield from page.jobs
        places = [
            (lane, page.after)
            for (lane, _), page in zip(places, pages, strict=True)
            if page.after is not None
        ]
