"""The rows that each Spark task reads."""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import Final, NamedTuple

from dueline.core.clock import SECOND_US
from dueline.core.job import Job, JobId
from dueline.core.lane import Lane
from dueline.core.store import Row, Store
from dueline.core.tuples import field
from dueline.jobs.history_batch import ATTEMPTS_MAX, size_of

Position = tuple[int, bytes]
"""A reader at this position has read all rows at or below it, in the order of (at_us, id)."""

START: Final[Position] = (0, b"")
PROBE: Final = 5000
"""A slice of fewer rows is not split: a Spark task costs as much as reading 10,000 rows."""

ROWS_MAX: Final = 2000
"""Maximum number of rows in one read: a bundle has about 10 KiB."""

JOBS_PROBE: Final = 1000
"""As PROBE, for jobs, which take longer to read."""

LANES_PROBED_MAX: Final = 64
IDS_KEPT_MAX: Final = 1_000_000
_GREATEST: Final = 2**62
_position, _id = field(Row, "at_us", "id"), field(Row, "id")
_LAST_ID: Final = JobId(b"\xff" * 16)


class RowSlice(NamedTuple):
    """Rows of one shard of a stream: after `after`, up to and including `until`.

    Attributes:
        is_asked: Whether the caller set the start; otherwise the oldest kept row is the start.
    """

    stream: str
    shard: int
    after: Position
    until: Position
    is_asked: bool = True


class LaneSlice(NamedTuple):
    """Rows of one lane: after `after_us`, up to and including `until_us`; None for no bound."""

    lane: Lane
    after_us: int | None
    until_us: int | None


def behind(mark_us: int) -> Position:
    """Return the position after all rows up to a watermark."""
    return (mark_us + 1, b"")


# Rows of streams


def cut_rows(store: Store, whole: RowSlice, parts: int) -> list[RowSlice]:
    """Split a slice by time into up to `parts` slices; return none if it is empty.

    A slice may end inside a timestamp. No split lies at or beyond its end, so the parts together
    hold exactly the rows of the slice.
    """
    stream, shard, after, until, is_asked = whole
    few = 1 if parts == 1 else -(-PROBE // ATTEMPTS_MAX)
    rows = first_rows(store, whole, few)
    if not rows:
        return []
    if parts == 1 or len(rows) < few:
        return [whole]
    if sum(map(size_of, rows)) < PROBE:
        rows = first_rows(store, whole, PROBE)
    if sum(map(size_of, rows)) < PROBE:
        return [whole]
    last_us = _last(partial(_has_row_after, store, whole), rows[0].at_us, until[0])
    places = map(behind, _cuts(rows[0].at_us, last_us, parts))
    cuts = [after, *(place for place in places if after < place < until), until]
    return [RowSlice(stream, shard, *ends, is_asked) for ends in pairwise(cuts)]


def first_rows(store: Store, whole: RowSlice, limit: int) -> Sequence[Row]:
    """Read the first rows of a slice, none beyond its end, which may lie inside a timestamp."""
    stream, shard, after, until, _ = whole
    rows = store.tail(stream, shard, after=after, limit=limit, until_us=until[0]).rows
    return rows[: bisect_right(rows, until, key=_position)]


def rows_of(store: Store, one: RowSlice, *, page: int) -> Iterator[list[Row]]:
    """Yield the rows of a slice in pages; a row that is stored twice is returned once.

    Args:
        page: Number of rows of a page, where a bundle counts as its attempts.
    """
    some: list[Row] = []
    size = 0
    for row, many in _sized(store, one, page):
        some.append(row)
        size += many
        if size >= page:
            yield some
            some, size = [], 0
    if some:
        yield some


def places_in(store: Store, one: RowSlice, most: int) -> Iterator[tuple[int, Position]]:
    """Yield cumulative counts of rows and their positions, until the count reaches `most`."""
    size = 0
    for row, many in _sized(store, one, most):
        size += many
        yield size, _position(row)
        if size >= most:
            return


def _sized(store: Store, one: RowSlice, page: int) -> Iterator[tuple[Row, int]]:
    """Yield rows and how many attempts each holds; a row that is stored twice once."""
    seen: set[bytes] = set()
    limit = min(page, ROWS_MAX)
    after: Position | None = one.after
    while after is not None:
        read = store.tail(one.stream, one.shard, after=after, limit=limit, until_us=one.until[0])
        rows = read.rows[: bisect_right(read.rows, one.until, key=_position)]
        is_last = len(rows) < len(read.rows) or len(read.rows) < limit
        ids = set(map(_id, rows))
        if len(ids) < len(rows) or not seen.isdisjoint(ids):  # never in transactional stores
            first = {row.id: row for row in reversed(rows) if row.id not in seen}
            rows = [row for row in rows if first.get(row.id) is row]
        if len(seen) > IDS_KEPT_MAX:
            seen.clear()
        seen |= ids
        yield from zip(rows, map(size_of, rows), strict=True)
        after = None if is_last else read.after


# Rows of jobs


def cut_lanes(store: Store, lanes: Sequence[Lane], parts: int) -> list[list[LaneSlice]]:
    """Divide lanes among about `parts` tasks; long lanes are split by time."""
    if len(lanes) > LANES_PROBED_MAX:
        size = -(-len(lanes) // parts)
        some = [lanes[start : start + size] for start in range(0, len(lanes), size)]
        return [[LaneSlice(lane, None, None) for lane in task] for task in some]
    short: list[LaneSlice] = []
    tasks: list[list[LaneSlice]] = []
    for lane in lanes:
        jobs = store.scan(lane, after=None, until_us=None, limit=JOBS_PROBE).jobs
        if len(jobs) < JOBS_PROBE or parts == 1:
            if jobs:
                short.append(LaneSlice(lane, None, None))
            continue
        first_us = jobs[0].at_us
        last_us = _last(partial(_has_job_after, store, lane), first_us, _GREATEST)
        share = max(2, parts // len(lanes))
        cuts = [None, *_cuts(first_us, last_us, share), None]
        tasks += [[LaneSlice(lane, *ends)] for ends in pairwise(cuts)]
    return [short, *tasks] if short else tasks


def jobs_of(store: Store, one: LaneSlice, *, page: int) -> Iterator[Sequence[Job]]:
    """Yield the jobs of a slice, one page at a time."""
    after = None if one.after_us is None else (one.after_us, _LAST_ID)
    while True:
        read = store.scan(one.lane, after=after, until_us=one.until_us, limit=page)
        if read.jobs:
            yield read.jobs
        if read.after is None:
            return
        after = read.after


# Where to cut


def _has_row_after(store: Store, whole: RowSlice, at_us: int) -> bool:
    stream, shard, _, until, _ = whole
    return bool(store.tail(stream, shard, after=behind(at_us), limit=1, until_us=until[0]).rows)


def _has_job_after(store: Store, lane: Lane, at_us: int) -> bool:
    return bool(store.scan(lane, after=(at_us, _LAST_ID), until_us=None, limit=1).jobs)


def _last(has_after: Callable[[int], bool], first_us: int, until_us: int) -> int:
    """Find the time of the last row, to the second, in at most 60 reads."""
    low, step = first_us, SECOND_US
    while low + step < until_us and has_after(low + step):
        low += step
        step *= 2
    high = min(low + step, until_us)
    while high - low > SECOND_US:
        middle = (low + high) // 2
        if has_after(middle):
            low = middle
        else:
            high = middle
    return high


def _cuts(first_us: int, last_us: int, parts: int) -> list[int]:
    """Return the timestamps that divide a range of time into `parts` parts."""
    width_us = (last_us - first_us) / parts
    return sorted({first_us + round(width_us * number) for number in range(1, parts)})
