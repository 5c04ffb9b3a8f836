"""Lookups by id, and reads of a lane in order, on Cassandra."""

from bisect import insort
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Final

from dueline.core.job import Job, JobId
from dueline.core.lane import Lane
from dueline.core.store import JobPage
from dueline.stores.cassandra import statements as rows
from dueline.stores.cassandra.lane_reader import BYTES_AT_ONCE, LanePages, Slice, size_of
from dueline.stores.cassandra.session import Call, CassandraSession
from dueline.stores.cassandra.settlement import Verdicts
from dueline.stores.cassandra.statements import Found
from dueline.stores.cursor_cache import (
    END,
    PAGE_GROWTH,
    PAGE_MAX,
    PAGE_MIN,
    START,
    Key,
    Page,
    RowVersion,
    key_of,
)

LOOKS_MAX: Final = 3
"""Maximum number of lookups of a job that moves to another lane meanwhile."""

Order = tuple[int, JobId]
"""Sort key of a job in a scan: `at_us`, then id."""

_AT_US_MAX: Final = 2**63 - 1
_FIRST: Final = Page(START, PAGE_MAX)


def find(
    session: CassandraSession, verdicts: Verdicts, ids: Sequence[JobId]
) -> Sequence[Job | None]:
    """Return jobs by id: read all places where the row may be, then those rows.

    A stub may be old, so its job is looked up again after the stub is completed.
    """
    best: dict[JobId, Job] = {}
    left = list(dict.fromkeys(ids))
    for _ in range(LOOKS_MAX):
        read = _look(session, left)
        for row in read:
            job = row.job
            if not row.stub and (job.id not in best or job.hop > best[job.id].hop):
                best[job.id] = job
        stubs = [row for row in read if row.stub]
        verdicts.carry(stubs)
        left = list(dict.fromkeys(stub.job.id for stub in stubs if stub.job.id not in best))
        if not left:
            break
    return [best.get(job_id) for job_id in ids]


def _look(session: CassandraSession, ids: Sequence[JobId]) -> list[Found]:
    """Return all rows of some jobs, stubs included."""
    calls: list[Call] = []
    lanes: list[Lane] = []
    placed = session.read_many([rows.places(job_id) for job_id in ids])
    for job_id, places in zip(ids, placed, strict=True):
        for hop, *lane, pos_us in places:
            lanes.append(Lane(*lane))
            calls.append(rows.some(lanes[-1], [(pos_us, job_id, hop)]))
    answers = session.read_many(calls)
    return [
        rows.found(lane, row) for lane, answer in zip(lanes, answers, strict=True) for row in answer
    ]


def scan_each(
    pages: LanePages,
    verdicts: Verdicts,
    places: Sequence[tuple[Lane, Order | None]],
    *,
    until_us: int | None,
    limit: int,
) -> Sequence[JobPage]:
    """Read a page of each of many lanes in (at, id) order, after completing its stubs.

    The next rows of all lanes are read whole, in the order of keys. A row's `at_us` is never below
    its position, so those due until the last of these positions are a page. A lane without such a
    row, as where many of the first rows are claimed, is read by itself.
    """
    for queue, place in {place[0].queue: place for place in places}.items():
        if not pages.is_weighed(queue):  # the size of a row says how many may be read
            _read_each(pages, verdicts, [place], until_us, 1)
    shown = _read_each(pages, verdicts, places, until_us, limit)
    return [
        shown.get(lane) or scan(pages, verdicts, lane, after=after, until_us=until_us, limit=limit)
        for lane, after in places
    ]


def _read_each(
    pages: LanePages,
    verdicts: Verdicts,
    places: Sequence[tuple[Lane, Order | None]],
    until_us: int | None,
    limit: int,
) -> Mapping[Lane, JobPage]:
    """Return the pages of those lanes that can be read together."""
    last_us = _AT_US_MAX if until_us is None else until_us
    afters = dict(places)
    alike: dict[Order | None, list[Lane]] = {}
    for lane, after in places:
        alike.setdefault(after, []).append(lane)
    asked = [(lanes, _parts(lanes[0], after, last_us)) for after, lanes in alike.items()]
    shown: dict[Lane, JobPage] = {}
    stubs: list[Found] = []
    for lane, (first, *behind) in pages.each(asked, limit + 1).items():
        if not all(part.is_all for part in behind):
            continue
        end = None if first.is_all else key_of(first.found[-1].job)[:2]
        read = [row for part in (first, *behind) for row in part.found]
        jobs = [job for job in _shown(read, afters[lane], end) if job.at_us <= last_us]
        stubs += [row for row in read if row.stub]
        if len(jobs) > limit:
            shown[lane] = JobPage(jobs[:limit], _order(jobs[limit - 1]))
        elif jobs or end is None:
            shown[lane] = JobPage(jobs, end)
    verdicts.carry(stubs)  # K4: nobody claims from the lanes of dead-letter jobs
    return shown


def _parts(lane: Lane, after: Order | None, until_us: int) -> Sequence[Slice]:
    """Return the parts of a lane that have the rows after a place, the one with most rows first."""
    end = (until_us, *END[1:])
    if after is None:
        return (Slice(lane, _FIRST, until=end),)
    rest = Slice(lane, _FIRST._replace(after=(*after, END[2])), until=end)
    return (rest, *_behind(lane, after, until_us))


def scan(
    pages: LanePages,
    verdicts: Verdicts,
    lane: Lane,
    *,
    after: Order | None,
    until_us: int | None,
    limit: int,
    skip: int = 0,
) -> JobPage:
    """Read a page of one lane, as `scan_each` does, also behind many rows that are not shown.

    The keys of the next rows are read first, and only those rows are read whole. A row's `at_us` is
    never below its position, so the read ends when positions pass the last of these rows. It starts
    where the last page ended; for earlier positions the server filters rows that are due later. A
    page keeps `limit` + 1 keys in memory and its rows, fewer than `limit` if they are large. The
    server's work still grows with the number of rows before the page.
    """
    last_us = _AT_US_MAX if until_us is None else until_us
    while True:
        most = skip + limit + 1
        places = _next_places(pages, lane, after=after, until_us=last_us, most=most)[skip:]
        whole, end = _whole(pages, lane, places[:limit])
        verdicts.carry([row for row in whole if row.stub])
        jobs = _shown(whole, after, end)
        is_last = not places or (len(places) <= limit and end == places[-1][0])
        if jobs or is_last:
            return JobPage(jobs, None if is_last else end)
        after, skip = end, 0


def walk(
    pages: LanePages,
    verdicts: Verdicts,
    lane: Lane,
    *,
    after: Order | None,
    until: Order | None,
    limit: int,
    skip: int = 0,
) -> JobPage:
    """Read a page of one lane in the order of keys, after completing its stubs."""
    first = START if after is None else (*after, END[2])
    last = END if until is None else (*until, END[2])
    while True:
        size = min(max(skip + limit, PAGE_MIN), PAGE_MAX)
        part = Slice(lane, Page(first, size), until=last)
        read = chain.from_iterable(_pages_of(pages, part))
        places = [(key[:2], key) for key, _ in islice(read, skip, skip + limit)]
        whole, end = _whole(pages, lane, places)
        verdicts.carry([row for row in whole if row.stub])
        jobs = sorted((row.job for row in whole if not row.stub), key=key_of)
        is_last = len(places) < limit and (end is None or end == places[-1][0])
        if jobs or is_last or end is None:
            return JobPage(jobs, None if is_last else end)
        first, skip = (*end, END[2]), 0


def _next_places(
    pages: LanePages, lane: Lane, *, after: Order | None, until_us: int, most: int
) -> list[tuple[Order, Key]]:
    """Return the keys of the next rows, in order, at most `most`."""
    nearest: list[tuple[Order, Key]] = []

    def take(read: Iterable[tuple[Key, RowVersion]]) -> None:
        for key, seen in read:
            place = ((seen.at_us, key[1]), key)
            is_past = after is None or place[0] > after
            if is_past and seen.at_us <= until_us and (len(nearest) < most or place < nearest[-1]):
                insort(nearest, place)
                del nearest[most:]

    start = START
    if after is not None:
        start = (*after, END[2])
        for part in _behind(lane, after, until_us):
            for read in _pages_of(pages, part):
                take(read)
    first = Page(start, min(max(most, PAGE_MIN), PAGE_MAX))
    for read in _pages_of(pages, Slice(lane, first)):
        take(read)
        last = read[-1][0] if read else END
        if last[0] > until_us or (len(nearest) == most and nearest[-1][0] <= last[:2]):
            break
    return nearest


def _behind(lane: Lane, after: Order, until_us: int) -> Iterator[Slice]:
    """Yield slices of the lane that have only rows due after the last page."""
    edge = (after[0], *START[1:])
    yield Slice(lane, _FIRST, until=edge, ats_us=(after[0], until_us))
    if after[0] < until_us:
        last = (*after, END[2])
        yield Slice(lane, Page(edge, PAGE_MAX), until=last, ats_us=(after[0] + 1, until_us))


def _pages_of(pages: LanePages, part: Slice) -> Iterator[list[tuple[Key, RowVersion]]]:
    """Yield the rows of a slice, in growing pages."""
    while True:
        read = [rows.thin(row) for row in pages.read([part])[0]]
        yield read
        if len(read) < part.page.limit:
            return
        limit = min(PAGE_GROWTH * part.page.limit, PAGE_MAX)
        part = part._replace(page=Page(read[-1][0], limit))


def _whole(
    pages: LanePages, lane: Lane, places: Sequence[tuple[Order, Key]]
) -> tuple[list[Found], Order | None]:
    """Read whole rows up to BYTES_AT_ONCE; return them and the last one's sort key."""
    read: list[Found] = []
    size, end = 0, None
    left = list(places)
    while left and size < BYTES_AT_ONCE:
        most = pages.whole_max(lane.queue)
        part, left = left[:most], left[most:]
        end = part[-1][0]
        asked = [(lane, keys) for keys in rows.chunks([key for _, key in part])]
        whole = [row for answer in pages.some(asked) for row in answer]
        size += sum(map(size_of, whole))
        read += whole
    return read, end


def _shown(read: Iterable[Found], after: Order | None, end: Order | None) -> list[Job]:
    """Return the jobs of a page, by their present sort keys."""
    shown = [
        row.job
        for row in read
        if not row.stub
        and (after is None or _order(row.job) > after)
        and (end is None or _order(row.job) <= end)
    ]
    return sorted(shown, key=_order)


def _order(job: Job) -> Order:
    return (job.at_us, job.id)
