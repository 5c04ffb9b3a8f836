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
from dueline.core.lane import Lane, dead_queue
from dueline.core.pagination import JOBS_A_PAGE, LANES_AT_ONCE, first_of_each, walk
from dueline.core.store import Jobs

SCAN_MAX = 100_000
"""Maximum number of rows of one queue that are read for a count."""

LANES_COUNTED = 200
"""Maximum number of lanes whose jobs are counted without being read."""

SKIP = 1024
"""Number of rows that are skipped first."""

FIRST_ROWS = 4000
"""Maximum number of rows that are read together."""

WAITING_STATES = ("ready", "running", "scheduled", "retrying", "paused", "expired")


@dataclass(frozen=True, slots=True)
class Counts:
    """The jobs of one queue, by state.

    Attributes:
      expired: Waiting jobs past their expiry; the next worker ends them.
      oldest_ready_us: Since when the oldest ready job has been ready; None without one.
      workers: Live workers that serve the queue.
      is_capped: There are more jobs than were counted.
      paused: Jobs that are paused one by one.
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
    paused: int = 0
    ready_by_shard: Mapping[int, int] = field(default_factory=dict, compare=False)
    oldest_by_shard: Mapping[int, int] = field(default_factory=dict, compare=False)

    def living(self) -> int:
        """Return how many jobs wait or run."""
        waiting = self.ready + self.scheduled + self.retrying + self.paused + self.expired
        return waiting + self.running


def count(
    engine: Engine,
    queue: str,
    workers: Sequence[Presence],
    *,
    most: int = SCAN_MAX,
    ahead_us: int = 0,
    until_us: int | None = None,
    whole: bool = False,
) -> Counts:
    """Count a queue's jobs by reading them, at most `most` live and `most` dead ones.

    With `whole`, more jobs of up to LANES_COUNTED lanes are counted without being read: those that
    are due as ready, the others as scheduled.

    Args:
        engine: The store.
        queue: The queue.
        workers: The live workers.
        most: Maximum number of rows that are read.
        ahead_us: Jobs that will be due within this time count as ready.
        until_us: When no further page and no further lane is read, by the monotonic clock.
        whole: Count jobs beyond the maximum.
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
    is_capped = read == most
    if is_capped and whole and (total := _length(engine, queue, None)) is not None:
        due = _length(engine, queue, now_us + ahead_us) or 0
        by_state["ready"] = max(by_state["ready"], due - by_state["expired"])
        by_state["scheduled"] += max(0, total - sum(by_state.values()))
        is_capped = False
    dead = 0
    for job in islice(_rows(engine, dead_queue(queue), stop_us), most):
        is_late |= job is None
        dead += job is not None
    if dead == most and whole and (total := _length(engine, dead_queue(queue), None)) is not None:
        dead = total
    else:
        is_capped |= dead == most
    return Counts(
        queue,
        **by_state,
        dead=dead,
        oldest_ready_us=min(oldest.values(), default=None),
        workers=sum(queue in worker.queues for worker in workers),
        is_capped=is_late or is_capped,
        ready_by_shard=shards,
        oldest_by_shard=oldest,
    )


def _length(engine: Engine, queue: str, until_us: int | None) -> int | None:
    """Return the number of rows of a queue, due by a time or all; None for too many lanes."""
    lanes = list(islice(engine.lanes_of(queue), LANES_COUNTED + 1))
    if len(lanes) > LANES_COUNTED:
        return None
    return sum(_length_of(engine.store, lane, until_us) for lane in lanes)


def _length_of(jobs: Jobs, lane: Lane, until_us: int | None) -> int:
    """Count the rows of a lane by skips, which are doubled until they pass its end."""
    count, step, after, is_growing = 0, SKIP, None, True
    while step:
        page = jobs.scan(lane, after=after, until_us=until_us, limit=1, skip=step - 1)
        if page.jobs:
            count, after = count + step, (page.jobs[0].at_us, page.jobs[0].id)
            step = 2 * step if is_growing else step // 2
        else:
            is_growing, step = False, step // 2
    return count


def _rows(engine: Engine, queue: str, until_us: float) -> Iterator[Job | None]:
    """Yield the rows of a queue until a time; then None, if there may be more."""

    def is_late() -> bool:
        return engine.clock.monotonic_us() > until_us

    lanes = engine.lanes_of(queue)
    size = 1 if is_late() else LANES_AT_ONCE
    read = 0
    while part := list(islice(lanes, size)):
        if read and is_late():
            yield None
            return
        long = []
        for lane, page in first_of_each(
            engine.store, part, limit=min(JOBS_A_PAGE, FIRST_ROWS // len(part))
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
