"""Rows in memory: which ones wait, their order, and pages of them."""

import heapq
from collections.abc import Iterable, Mapping

from dueline.core.codec import decode, encode
from dueline.core.job import Job, JobId, State
from dueline.core.lane import Lane
from dueline.core.store import JobPage, Row
from dueline.core.store_capabilities import LanesWithRows


def waits(row: Job, after_us: int, until_us: int) -> bool:
    """Return whether a row is free and becomes due after one time, up to another."""
    is_free = row.state == State.WAITING and not row.outcome
    return is_free and after_us < row.at_us <= until_us


def page_of(
    table: Mapping[tuple[int, bytes], Row],
    after: tuple[int, bytes] | None,
    limit: int,
    until_us: int | None,
    skip: int = 0,
) -> list[Row]:
    """Return rows of a stream's shard, in order."""
    places = (
        place
        for place in table
        if (after is None or place > after) and (until_us is None or place[0] <= until_us)
    )
    return [table[place] for place in heapq.nsmallest(skip + limit, places)[skip:]]


def jobs_page(
    rows: Iterable[Job],
    after: tuple[int, JobId] | None,
    until_us: int | None,
    limit: int,
    skip: int = 0,
) -> JobPage:
    """Return a page of a lane's rows, in (at, id) order."""
    wanted = [
        row
        for row in rows
        if (after is None or order(row) > after) and (until_us is None or row.at_us <= until_us)
    ]
    page = heapq.nsmallest(skip + limit, wanted, key=order)[skip:]
    return JobPage(page, order(page[-1]) if skip + len(page) < len(wanted) else None)


def order(job: Job) -> tuple[int, JobId]:
    """Return the sort key of a job in its lane."""
    return (job.at_us, job.id)


def lanes_page(held: Iterable[Lane], after: str | None, limit: int) -> LanesWithRows:
    """Return a page of the lanes that hold rows, in the order of lanes."""
    past = None if after is None else decode(after.encode(), Lane)
    lanes = sorted(lane for lane in held if past is None or lane > past)
    page = lanes[:limit]
    return LanesWithRows(page, encode(page[-1]).decode() if len(page) < len(lanes) else None)
