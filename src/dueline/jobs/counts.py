"""Counts the jobs of a queue by state."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from math import inf

from dueline.coordination.worker_registry import Presence
from dueline.core.engine import Engine
from dueline.core.job import Job
from dueline.core.job_status import status_of
from dueline.core.lane import dead_queue
from dueline.core.pagination import JOBS_A_PAGE, LANES_AT_ONCE, first_of_each, walk

SCAN_MAX = 100_000
"""Maximum number of rows of one queue that are read for a count."""

FIRST_ROWS = 4000
"""Maximum number of rows that are read together."""

WAITING_STATES = ("ready", "running", "scheduled", "retrying", "expired")


@dataclass(frozen=True, slots=True)
class Counts:
    """The jobs of one queue, by state.

    Attributes:
      expired: Waiting jobs past their expiry; the next worker ends them.
      oldest_ready_us: Since when the oldest ready job has been ready; None without one.
      workers: Live workers that serve the queue.
      is_capped: There are more jobs than were counted.
    """

    queue: str
    ready: int
    running: int
    scheduled: int
    retrying: int
    expired: int
    dead: int
    oldest_ready_us: int | None
    workers: int
    is_capped: bool
    ready_by_shard: Mapping[int, int] = field(default_factory=dict, compare=False)
    oldest_by_shard: Mapping[int, int] = field(default_factory=dict, compare=False)

    def living(self) -> int:
        """Return how many jobs wait or run."""
        return self.ready + self.running + self.scheduled + self.retrying + self.expired


def count(
    engine: Engine,
    queue: str,
    workers: Sequence[Presence],
    *,
    most: int = SCAN_MAX,
    ahead_us: int = 0,
    until_us: int | None = None,
) -> Counts:
    """Count a queue's jobs by reading them, at most `most` live and `most` dead ones.

    Args:
        engine: The store.
        queue: The queue.
        workers: The live workers.
        most: Maximum number of rows that are read.
        ahead_us: Jobs that will be due within this time count as ready.
        until_us: When no further page and no further lane is read, by the monotonic clock.
    """
    now_us = engine.time.latest_us()
    by_state = dict.fromkeys(WAITING_STATES, 0)
    shards: Counter[int] = Counter()
    oldest: dict[int, int] = {}
    read, is_late = 0, False
    stop_us = inf if until_us is None else until_us
    for job in islice(_rows(engine, queue, stop_us), most):
        if job is None:
            is_late = True
            break
        read += 1
        if job.outcome:  # the job has ended; its row is about to be deleted
            continue
        state = status_of(job, now_us)
        if state in ("scheduled", "retrying") and job.at_us <= now_us + ahead_us:
            state = "ready"
        by_state[state] += 1
        if state == "ready":
            shards[job.lane.shard] += 1
            oldest[job.lane.shard] = min(job.at_us, oldest.get(job.lane.shard, job.at_us))
    dead = 0
    for job in islice(_rows(engine, dead_queue(queue), stop_us), most):
        is_late |= job is None
        dead += job is not None
    return Counts(
        queue,
        **by_state,
        dead=dead,
        oldest_ready_us=min(oldest.values(), default=None),
        workers=sum(queue in worker.queues for worker in workers),
        is_capped=is_late or most in (read, dead),
        ready_by_shard=shards,
        oldest_by_shard=oldest,
    )


def _rows(engine: Engine, queue: str, until_us: float) -> Iterator[Job | None]:
    """Yield the rows of a queue until a time; then None, if there may be more."""

    def is_late() -> bool:
        return engine.clock.monotonic_us() > until_us

    lanes = engine.lanes_of(queue)
    size = 1 if is_late() else LANES_AT_ONCE
    read = 0
    while some := list(islice(lanes, size)):
        if read and is_late():
            yield None
            return
        long = []
        for lane, page in first_of_each(
            engine.store, some, limit=min(JOBS_A_PAGE, FIRST_ROWS // len(some))
        ):
            read += len(page.jobs)
            if page.after is None:
                yield from page.jobs
            else:
                long.append(lane)
        for lane in long:
            for number, rows in enumerate(walk(engine.store, lane)):
                if number and is_late():
                    yield None
                    return
                yield from rows
