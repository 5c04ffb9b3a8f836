"""Checks whether the width of each queue's buckets fits its load."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Final

from dueline.core.check import Check
from dueline.core.durations import span_text
from dueline.core.engine import Engine
from dueline.core.job import Job
from dueline.core.lane import bucket_of
from dueline.core.pagination import first_of_each, parts_of
from dueline.core.queue_settings import QueueSettings

ROWS_MAX: Final = 100_000
"""Maximum number of jobs in a bucket that is a partition of its own."""

BYTES_MAX: Final = 100 << 20
"""Maximum size of such a bucket, estimated."""

ROW_BYTES: Final = 400
"""Size of a row without its arguments."""

SAMPLE: Final = 100
"""Number of first jobs of a lane that are read to estimate the size of a job."""

LANES_MAX: Final = 500
"""Maximum number of lanes of a queue whose size is checked."""

LANES_AT_ONCE: Final = 50

BUCKETS_MAX: Final = 1_000
"""Number of buckets that polls may read; more are too many if they are nearly empty."""

NEARLY_EMPTY: Final = 10
"""Mean number of jobs, at most, in buckets that are nearly empty."""


def unfit_widths(engine: Engine, store: Mapping[str, str]) -> Iterator[Check]:
    """Yield a warning for each queue whose buckets are too wide, or too narrow.

    Args:
        engine: The store.
        store: The facts that the store describes; with "partitions", a bucket has a maximum size.
    """
    for name in engine.catalog.names():
        settings = engine.catalog.settings(name)
        if "partitions" in store:
            yield from _too_wide(engine, name, settings)
        yield from _too_narrow(engine, name, settings)


def _too_wide(engine: Engine, name: str, settings: QueueSettings) -> Iterator[Check]:
    lanes = islice(engine.lanes_of(name), LANES_MAX)
    for part in parts_of(lanes, LANES_AT_ONCE):
        for lane, page in first_of_each(engine.store, part, limit=SAMPLE):
            if page.after is None:
                continue
            job_bytes = _job_bytes(page.jobs)
            rows = min(ROWS_MAX, BYTES_MAX // job_bytes)
            if engine.store.scan(lane, after=None, until_us=None, limit=1, skip=rows).jobs:
                yield Check(
                    f"queue {name}",
                    "warning",
                    f"a bucket of {span_text(settings.width_us)} in shard {lane.shard} holds more "
                    f"than {rows:,} jobs of some {job_bytes:,} bytes, in one partition",
                    f"Raise its shards (`dueline queues set {name} --shards N`), or declare a new "
                    "queue with narrower buckets (`bucket`).",
                )
                return


def _too_narrow(engine: Engine, name: str, settings: QueueSettings) -> Iterator[Check]:
    today = bucket_of(engine.time.latest_us(), settings.width_us)
    pages = engine.pages_of(name, today)
    lanes = [
        pointer.lane for page in pages for pointer in page.pointers if pointer.listing <= today
    ]
    buckets = {(lane.shard, lane.bucket) for lane in lanes}
    if len(buckets) <= BUCKETS_MAX:
        return
    sample = lanes[:: len(lanes) // LANES_AT_ONCE]
    rows = [len(page.jobs) for _, page in first_of_each(engine.store, sample, limit=SAMPLE)]
    mean = sum(rows) / len(rows)
    if mean <= NEARLY_EMPTY:
        yield Check(
            f"queue {name}",
            "warning",
            f"each poll reads {len(buckets):,} buckets of {span_text(settings.width_us)}, with "
            f"{mean:.1f} jobs on average",
            "Start workers that serve it, or declare a new queue with wider buckets (`bucket`).",
        )


def _job_bytes(jobs: Sequence[Job]) -> int:
    """Return the mean size of rows."""
    return ROW_BYTES + sum(len(job.body) for job in jobs) // len(jobs)
