"""Iteration over the pages of a store."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Final, TypeVar

from dueline.core.job import Job, JobId
from dueline.core.lane import Lane, Pointer
from dueline.core.store import JobPage, Jobs, LanePage, Record, Records, Row, Streams
from dueline.core.store_capabilities import ReadsShardsAtOnce, ScansLanesAtOnce

RECORDS_A_PAGE: Final = 1000
LANES_A_PAGE: Final = 1000
JOBS_A_PAGE: Final = 500
ROWS_A_PAGE: Final = 1000

EVER: Final = 2**62
"""A bucket after all others."""


LANES_AT_ONCE: Final = 64
"""Number of lanes whose first rows are read together."""

PAGES_AT_ONCE: Final = 16
"""Number of lanes whose first pages are read together."""

READS_AT_ONCE: Final = 8
"""Number of reads at once in a store that answers several of them together."""

T = TypeVar("T")
U = TypeVar("U")


def at_once(jobs: Jobs, read: Callable[[T], U], places: Sequence[T]) -> Sequence[U]:
    """Read each of many places, several at a time if the store reads many shards at once."""
    if len(places) == 1 or not isinstance(jobs, ReadsShardsAtOnce):
        return [read(place) for place in places]
    from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415  (few processes need it)

    with ThreadPoolExecutor(READS_AT_ONCE, thread_name_prefix="dueline-read") as threads:
        return list(threads.map(read, places))


def scan_each(
    jobs: Jobs,
    places: Sequence[tuple[Lane, tuple[int, JobId] | None]],
    *,
    until_us: int | None = None,
    limit: int,
) -> Sequence[JobPage]:
    """Return for each lane the page after a place, together if the store reads many at once."""
    if isinstance(jobs, ScansLanesAtOnce):
        return jobs.scan_each(places, until_us=until_us, limit=limit)
    return [jobs.scan(lane, after=after, until_us=until_us, limit=limit) for lane, after in places]


def first_of_each(
    jobs: Jobs, lanes: Sequence[Lane], *, until_us: int | None = None, limit: int
) -> Iterator[tuple[Lane, JobPage]]:
    """Yield each lane with its first page, as `scan_each` does."""
    pages = scan_each(jobs, [(lane, None) for lane in lanes], until_us=until_us, limit=limit)
    return zip(lanes, pages, strict=True)


def parts_of(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Yield the items in lists of this size; the last one may be shorter."""
    rest = iter(items)
    while part := list(islice(rest, size)):
        yield part


def record_at(records: Records, partition: str, key: str) -> Record | None:
    """Return one record; None if it does not exist or has expired."""
    for record in records.read(partition, after=_before(key), limit=1):
        if record.key == key:
            return record
    return None


def _before(key: str) -> str | None:
    """Return a string directly before a key; only strings with U+10FFFF are between them."""
    if not key:
        return None
    if key[-1] == "\0":
        return key[:-1]
    last = chr(ord(key[-1]) - 1)
    if last == "\udfff":  # skip the surrogates
        last = "\ud7ff"
    return key[:-1] + last + "\U0010ffff"


def records_in(
    records: Records, partition: str, *, after: str | None = None, page_size: int = RECORDS_A_PAGE
) -> Iterator[Record]:
    """Yield the records of a partition after the key `after`, in key order.

    Args: page_size: number of records per read; small for large records.
    """
    while True:
        page = records.read(partition, after=after, limit=page_size)
        yield from page
        if len(page) < page_size:
            return
        after = page[-1].key


def lane_pages(
    jobs: Jobs,
    queue: str,
    shard: int,
    *,
    until_bucket: int,
    after: Pointer | None = None,
    first: LanePage | None = None,
    page_size: int = LANES_A_PAGE,
) -> Iterator[LanePage]:
    """Yield the lane list of a shard up to a listing bucket; at least one page.

    first: The first page, if it was read already.
    """
    if first is not None:
        yield first
        if (after := first.after) is None:
            return
    while True:
        page = jobs.lanes(queue, shard, until_bucket=until_bucket, after=after, limit=page_size)
        yield page
        after = page.after
        if after is None:
            return


def first_pages(
    jobs: Jobs,
    queue: str,
    after: Mapping[int, Pointer | None],
    *,
    until_bucket: int,
    limit: int = LANES_A_PAGE,
) -> Mapping[int, LanePage]:
    """Return the first page of each shard if the store reads many at once; otherwise nothing."""
    if not isinstance(jobs, ReadsShardsAtOnce):
        return {}
    return jobs.lanes_of(queue, after, until_bucket=until_bucket, limit=limit)


def walk(jobs: Jobs, lane: Lane, *, page_size: int = JOBS_A_PAGE) -> Iterator[Sequence[Job]]:
    """Yield the pages of a lane, in the order in which the store keeps its rows."""
    after = None
    while True:
        page = jobs.walk(lane, after=after, until=None, limit=page_size)
        yield page.jobs
        after = page.after
        if after is None:
            return


def jobs_in(jobs: Jobs, lane: Lane) -> Iterator[Job]:
    """Yield all rows of a lane, in the order in which the store keeps them."""
    return chain.from_iterable(walk(jobs, lane))


def jobs_in_lanes(jobs: Jobs, lanes: Iterable[Lane]) -> Iterator[Job]:
    """Yield all rows of lanes, lane by lane; the first pages of some lanes are read at once."""
    for part in parts_of(lanes, PAGES_AT_ONCE):
        for lane, page in first_of_each(jobs, part, limit=JOBS_A_PAGE):
            yield from page.jobs if page.after is None else jobs_in(jobs, lane)


def rows_in(
    streams: Streams,
    stream: str,
    shard: int,
    *,
    after: tuple[int, bytes] | None,
    until_us: int | None = None,
    page_size: int = ROWS_A_PAGE,
) -> Iterator[Row]:
    """Yield the rows of a shard after `after`, in order; not all after its watermark."""
    while True:
        page = streams.tail(stream, shard, after=after, limit=page_size, until_us=until_us)
        yield from page.rows
        if len(page.rows) < page_size:
            return
        after = page.after
