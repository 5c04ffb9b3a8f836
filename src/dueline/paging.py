"""All of what a store answers page by page."""

from collections.abc import Iterator
from typing import Final

from dueline.lane import Pointer
from dueline.store import Jobs, LanePage, Record, Records

RECORDS_A_PAGE: Final = 1000
LANES_A_PAGE: Final = 1000


def records_in(
    records: Records, partition: str, *, after: str | None = None, page_size: int = RECORDS_A_PAGE
) -> Iterator[Record]:
    """Read a partition of records in key order, past the key `after`, to its end.

    Args: page_size: how many are read at once; few where records are large.
    """
    while True:
        page = records.read(partition, after=after, limit=page_size)
        yield from page
        if len(page) < page_size:
            return
        after = page[-1].key


def lane_pages(
    jobs: Jobs, queue: str, shard: int, *, until_bucket: int, page_size: int = LANES_A_PAGE
) -> Iterator[LanePage]:
    """Read the lane list of a shard, up to a listing bucket; there is one page at least."""
    after: Pointer | None = None
    while True:
        page = jobs.lanes(queue, shard, until_bucket=until_bucket, after=after, limit=page_size)
        yield page
        after = page.after
        if after is None:
            return
