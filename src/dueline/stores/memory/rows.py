"""Rows in memory: their order, and what a claim and a move change in them."""

import heapq
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from dueline.core.codec import decode, encode
from dueline.core.job import Job, JobId, State, Token
from dueline.core.lane import Lane
from dueline.core.store import JobPage, Move, Row
from dueline.core.store_capabilities import LanesWithRows


class Terms(NamedTuple):
    """What a claim writes into every row that it takes."""

    now_us: int
    lease_us: int
    worker: str
    token: Token


MOVED_CELLS = ("at_us", "token", "errors", "crashes", "alone", "state", "outcome", "error")


def claimed(row: Job, terms: Terms) -> Job:
    """Tell what a claim makes of a row; the lease of one claimed ahead counts from its time."""
    has_crashed = row.state == State.STARTED
    return row._replace(
        at_us=max(terms.now_us, row.at_us) + terms.lease_us,
        fence=row.fence + 1,
        token=terms.token,
        worker=terms.worker,
        claimed_us=terms.now_us,
        crashes=row.crashes + has_crashed,
        alone=row.alone or has_crashed,
        state=State.CLAIMED,
    )


def waits(row: Job, after_us: int, until_us: int) -> bool:
    """Tell whether a row waits for a time after one instant, up to another."""
    is_free = row.state == State.WAITING and not row.outcome
    return is_free and after_us < row.at_us <= until_us


def rewritten(row: Job, move: Move) -> Job:
    """Tell what a move says of a row, wherever it comes to lie."""
    cells = {name: getattr(move, name) for name in MOVED_CELLS}
    if move.opts is not None:
        assert move.to is None, "what is carried keeps its birth cells"
        cells["opts"] = move.opts
    return row._replace(**cells)


def page_of(
    table: Mapping[tuple[int, bytes], Row],
    after: tuple[int, bytes] | None,
    limit: int,
    until_us: int | None,
) -> list[Row]:
    """Read rows of a stream's shard in their order."""
    places = (
        place
        for place in table
        if (after is None or place > after) and (until_us is None or place[0] <= until_us)
    )
    return [table[place] for place in heapq.nsmallest(limit, places)]


def jobs_page(
    rows: Iterable[Job], after: tuple[int, JobId] | None, until_us: int | None, limit: int
) -> JobPage:
    """Read rows of a lane in the order of their times."""
    wanted = [
        row
        for row in rows
        if (after is None or order(row) > after) and (until_us is None or row.at_us <= until_us)
    ]
    page = heapq.nsmallest(limit, wanted, key=order)
    return JobPage(page, order(page[-1]) if len(page) < len(wanted) else None)


def order(job: Job) -> tuple[int, JobId]:
    """Order jobs by when they are next touched."""
    return (job.at_us, job.id)


def lanes_page(held: Iterable[Lane], after: str | None, limit: int) -> LanesWithRows:
    """Return a page of the lanes that hold rows, in the order of lanes."""
    past = None if after is None else decode(after.encode(), Lane)
    lanes = sorted(lane for lane in held if past is None or lane > past)
    page = lanes[:limit]
    return LanesWithRows(page, encode(page[-1]).decode() if len(page) < len(lanes) else None)
