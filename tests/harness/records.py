"""Recorded attempts for tests of the simulation."""

from collections.abc import Iterable
from typing import NamedTuple

from dueline.foresight.record import Kind, Record

BEGUN_US = 1_795_000_020_000_000
MS = 1_000


class Ran(NamedTuple):
    """A job that ran: when it was ready, and for how long, in milliseconds from the beginning."""

    ready: float
    run: float = 10
    tenant: str = ""
    priority: int = 0
    limits: tuple[str, ...] = ()
    shard: int = 0
    waits: tuple[float, ...] = ()
    late: float = 1
    worker: str = "one"
    queue: str = "mail"


def record_of(jobs: Iterable[Ran]) -> Record:
    """Return a record of jobs that each started `late` after they were ready.

    `waits`: between the attempts of a job that failed.
    """
    kinds: dict[Kind, int] = {}
    workers: dict[str, int] = {}
    rows: list[tuple[int, ...]] = []
    for job in sorted(jobs):
        kind = Kind(job.queue, f"{job.queue}.task", job.tenant, job.priority, job.limits, job.shard)
        number = kinds.setdefault(kind, len(kinds))
        worker = workers.setdefault(job.worker, len(workers))
        ready = job.ready
        for nth, wait in enumerate((*job.waits, 0), 1):
            start = ready + job.late
            at = [BEGUN_US + round(1000 * ms) for ms in (ready, start, start, start + job.run)]
            rows.append((number, nth, at[0], 0, *at[1:], worker))
            ready = start + job.run + wait
    columns = map(list, zip(*rows, strict=True))
    hashes = [7 * n for n in range(len(rows))]
    return Record._make([list(kinds), *columns, list(workers), hashes])
