"""Jobs that are claimed now, according to their rows."""

from collections.abc import Iterator, Sequence
from itertools import chain, islice
from typing import Final

from dueline.core.clock import SECOND_US
from dueline.core.engine import Engine
from dueline.core.job import Job, JobId
from dueline.core.lane import Lane, bucket_of
from dueline.core.store_capabilities import PREFETCH_US_MAX

_PAGE: Final = 500


def claims_of(engine: Engine, names: Sequence[str], most: int) -> list[Job]:
    """Return up to `most` jobs of some queues that are claimed and whose leases last."""
    lanes = chain.from_iterable(lanes_with_claims(engine, name) for name in names)
    pages = chain.from_iterable(claims_in(engine, lane) for lane in lanes)
    return list(islice(chain.from_iterable(pages), most))


def lanes_with_claims(engine: Engine, queue: str) -> Iterator[Lane]:
    """Yield the lanes of a queue in which there may be claimed jobs."""
    settings = engine.catalog.settings(queue)
    until_us = engine.time.latest_us() + settings.lease_us + PREFETCH_US_MAX
    for page in engine.pages_of(queue, bucket_of(until_us, settings.width_us)):
        yield from (lane for _, lane in page.pointers if page.heads.get(lane, 0) is not None)


def claims_in(engine: Engine, lane: Lane) -> Iterator[Sequence[Job]]:
    """Yield the claims in a lane that have not expired, page by page."""
    now_us = engine.time.earliest_us()
    until_us = now_us + engine.catalog.settings(lane.queue).lease_us + SECOND_US
    after: tuple[int, JobId] | None = (now_us, JobId(b""))
    while after is not None:
        page = engine.store.scan(lane, after=after, until_us=until_us, limit=_PAGE)
        after = page.after
        yield [job for job in page.jobs if job.is_claimed()]
