"""Find jobs that nobody looks at: the audit behind the marks.

A lane that holds a job which has been due for long, and that is listed nowhere, is listed again.
By the protocols there is none but where an enqueue that was never acknowledged landed late, so
each one is told of.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from dueline.core.clock import DAY_US, SECOND_US
from dueline.core.codec import decode, encode
from dueline.core.engine import Engine
from dueline.core.job import Job
from dueline.core.lane import Lane, bucket_of, living_queue
from dueline.core.maintenance import StepResult
from dueline.core.pagination import EVER, lane_pages
from dueline.core.store import Move, Put, Records
from dueline.core.store_capabilities import ListsLanes
from dueline.core.wakeup import place_of
from dueline.monitor import notes

EVERY_US = 600 * SECOND_US
LANES_A_STEP = 500

RESTS = 9
"""How many times as long as a step took the next one waits: where going through all lanes is
dear, a round takes longer, and is no more than a tenth of the work of one connection."""

OVERDUE_US = 60 * SECOND_US
"""Jobs due for less are not looked at: what is being listed now is nobody's error."""

FINDINGS_MAX = 20
KEEP_US = 30 * DAY_US
_KIND, _NAME = "audit", "findings"


@dataclass(frozen=True, slots=True)
class Finding:
    """A lane that was listed nowhere. job: the id of its first job, due since `due_us`."""

    at_us: int
    queue: str
    shard: int
    bucket: int
    priority: int
    tenant: str
    job: str
    due_us: int


def audit(engine: Engine, after: str | None) -> StepResult:
    """Look through some lanes, those that hold rows, and list again what is listed nowhere."""
    store = engine.store
    if not isinstance(store, ListsLanes):
        return StepResult()
    began_us = engine.time.earliest_us()
    page = store.lanes_with_rows(after=after, limit=LANES_A_STEP)
    overdue = {job.lane: job for job in _overdue(engine, page.lanes)}
    hidden = [overdue[lane] for lane in overdue.keys() - _listed(engine, overdue)]
    found = [_finding(engine, job) for job in hidden if _list_again(engine, job)]
    now_us = engine.time.latest_us()
    rest_us = RESTS * max(0, now_us - began_us)
    if not found:
        return StepResult(after=page.after, rest_us=rest_us)
    note = _added(store, found, engine.ids.token(), now_us=now_us)
    return StepResult(len(found), page.after, (note,), rest_us)


def _overdue(engine: Engine, lanes: Iterable[Lane]) -> Iterator[Job]:
    """Read the first job of each lane, where it has been due for long."""
    until_us = engine.time.earliest_us() - OVERDUE_US
    for lane in lanes:
        yield from engine.store.scan(lane, after=None, until_us=until_us, limit=1).jobs


def _listed(engine: Engine, lanes: Iterable[Lane]) -> set[Lane]:
    """Tell which of these lanes are listed, under whatever bucket."""
    wanted = set(lanes)
    found: set[Lane] = set()
    for queue, shard in {(lane.queue, lane.shard) for lane in wanted}:
        for page in lane_pages(engine.store, queue, shard, until_bucket=EVER):
            found |= wanted.intersection(pointer.lane for pointer in page.pointers)
    return found


def _list_again(engine: Engine, job: Job) -> bool:
    """Move a lane's first job forward by nothing to speak of: whoever does so lists the lane.

    The verdict names the token that was read: if anybody has touched the job, it is not hidden.
    """
    at_us = job.at_us - 1
    width_us = engine.catalog.settings(living_queue(job.lane.queue)).width_us
    move = Move(job, at_us, engine.ids.token(), bucket_of(at_us, width_us), job.errors, job.crashes,
                job.alone, job.state, job.outcome, job.error)  # fmt: skip
    is_moved = engine.store.settle([move])[0]
    if is_moved:
        engine.wake([place_of(move)])
    return is_moved


def _finding(engine: Engine, job: Job) -> Finding:
    return Finding(engine.time.latest_us(), *job.lane, job=job.id.hex(), due_us=job.due_us)


def findings(records: Records) -> list[Finding]:
    """Read what audits have found, the last one last."""
    record = notes.read(records, _KIND, _NAME)
    return [] if record is None else decode(record.value, list[Finding])


def _added(records: Records, found: Sequence[Finding], version: bytes, *, now_us: int) -> Put:
    """Make the note that adds to what was found."""
    kept = [*findings(records), *found][-FINDINGS_MAX:]
    return notes.put(_KIND, _NAME, encode(kept), version, expires_us=now_us + KEEP_US)
