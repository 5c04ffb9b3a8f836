"""Audit: find jobs in lanes that no worker reads.

A lane with a job that has been due for long, and that is not listed, is listed again. By the
protocols this only happens if an enqueue that was never acknowledged arrives late, so each one is
reported.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from dueline.coordination import notes
from dueline.core.clock import DAY_US, SECOND_US
from dueline.core.codec import encode
from dueline.core.engine import Engine
from dueline.core.job import Job
from dueline.core.lane import Lane, bucket_of, living_queue
from dueline.core.maintenance import StepResult
from dueline.core.pagination import EVER, lane_pages
from dueline.core.store import Move, Records
from dueline.core.store_capabilities import ListsLanes
from dueline.core.wakeup import place_of

EVERY_US = 600 * SECOND_US
LANES_A_STEP = 500

RESTS = 9
"""The next step waits this many times as long as a step took: if reading all lanes is expensive, a
round takes longer, and uses at most a tenth of one connection."""

OVERDUE_US = 60 * SECOND_US
"""Jobs that are due for less are ignored: their lanes may be being listed now."""

FINDINGS_MAX = 20
KEEP_US = 30 * DAY_US
_KIND, _NAME = "audit", "findings"


@dataclass(frozen=True, slots=True)
class Finding:
    """A lane that was not listed. job: the id of its first job, due since `due_us`."""

    at_us: int
    queue: str
    shard: int
    bucket: int
    priority: int
    tenant: str
    job: str
    due_us: int


def audit(engine: Engine, after: str | None) -> StepResult:
    """Check some of the lanes with rows, and list those again that are not listed."""
    store = engine.store
    if not isinstance(store, ListsLanes):
        return StepResult()
    began_us = engine.time.earliest_us()
    page = store.lanes_with_rows(after=after, limit=LANES_A_STEP)
    overdue = {job.lane: job for job in _overdue(engine, page.lanes, began_us - OVERDUE_US)}
    hidden = [overdue[lane] for lane in overdue.keys() - _listed(engine, overdue)]
    listed = [job for job in hidden if _list_again(engine, job)]
    now_us = engine.time.latest_us()
    new = [Finding(now_us, *job.lane, job=job.id.hex(), due_us=job.due_us) for job in listed]
    rest_us = RESTS * max(0, now_us - began_us)
    if not new:
        return StepResult(after=page.after, rest_us=rest_us)
    kept = [*findings(store), *new][-FINDINGS_MAX:]
    note = notes.put(_KIND, _NAME, encode(kept), engine.ids.token(), expires_us=now_us + KEEP_US)
    return StepResult(len(new), page.after, (note,), rest_us)


def _overdue(engine: Engine, lanes: Iterable[Lane], until_us: int) -> Iterator[Job]:
    """Read the first job of each lane, if it is due since `until_us` or longer."""
    for lane in lanes:
        yield from engine.store.scan(lane, after=None, until_us=until_us, limit=1).jobs


def _listed(engine: Engine, lanes: Iterable[Lane]) -> set[Lane]:
    """Return which of these lanes are listed, in any bucket."""
    wanted = set(lanes)
    listed: set[Lane] = set()
    for queue, shard in {(lane.queue, lane.shard) for lane in wanted}:
        for page in lane_pages(engine.store, queue, shard, until_bucket=EVER):
            listed |= wanted.intersection(pointer.lane for pointer in page.pointers)
    return listed


def _list_again(engine: Engine, job: Job) -> bool:
    """Move the first job of a lane by 1 us, which lists the lane.

    The move names the token that was read: if the job has changed, it is not hidden.
    """
    at_us = job.at_us - 1
    width_us = engine.catalog.settings(living_queue(job.lane.queue)).width_us
    move = Move(job, at_us, engine.ids.token(), bucket_of(at_us, width_us), job.errors, job.crashes,
                job.alone, job.state, job.outcome, job.error)  # fmt: skip
    is_moved = engine.store.settle([move])[0]
    if is_moved:
        engine.wake([place_of(move)])
    return is_moved


def findings(records: Records) -> list[Finding]:
    """Read the findings of audits, the last one last."""
    return notes.value(records, _KIND, _NAME, list[Finding]) or []
