"""Find jobs that nobody looks at: the audit behind the marks.

A lane that holds a job which has been due for long, and that is listed nowhere, is listed again.
By the protocols there is none but where an enqueue that was never acknowledged landed late, so
each one is told of.
"""

from collections.abc import Iterable, Iterator

from dueline.census import Census
from dueline.chores.chore import Report
from dueline.clock import SECOND_US
from dueline.job import Job
from dueline.lane import Lane, bucket_of, living_queue
from dueline.paging import EVER, lane_pages
from dueline.queue import Queues
from dueline.recipes.findings import Finding, added
from dueline.store import Move
from dueline.waker import place_of

EVERY_US = 600 * SECOND_US
LANES_A_STEP = 500

RESTS = 9
"""How many times as long as a step took the next one waits: where going through all lanes is
dear, a round takes longer, and is no more than a tenth of the work of one connection."""

OVERDUE_US = 60 * SECOND_US
"""Jobs due for less are not looked at: what is being listed now is nobody's error."""


def audit(queues: Queues, after: str | None) -> Report:
    """Look through some lanes, those that hold rows, and list again what is listed nowhere."""
    store = queues.store
    if not isinstance(store, Census):
        return Report()
    began_us = queues.time.earliest_us()
    page = store.lanes_held(after=after, limit=LANES_A_STEP)
    overdue = {job.lane: job for job in _overdue(queues, page.lanes)}
    hidden = [overdue[lane] for lane in overdue.keys() - _listed(queues, overdue)]
    found = [_finding(queues, job) for job in hidden if _list_again(queues, job)]
    now_us = queues.time.latest_us()
    rest_us = RESTS * max(0, now_us - began_us)
    if not found:
        return Report(after=page.after, rest_us=rest_us)
    note = added(store, found, queues.ids.token(), now_us=now_us)
    return Report(len(found), page.after, (note,), rest_us)


def _overdue(queues: Queues, lanes: Iterable[Lane]) -> Iterator[Job]:
    """Read the first job of each lane, where it has been due for long."""
    until_us = queues.time.earliest_us() - OVERDUE_US
    for lane in lanes:
        yield from queues.store.scan(lane, after=None, until_us=until_us, limit=1).jobs


def _listed(queues: Queues, lanes: Iterable[Lane]) -> set[Lane]:
    """Tell which of these lanes are listed, under whatever bucket."""
    wanted = set(lanes)
    found: set[Lane] = set()
    for queue, shard in {(lane.queue, lane.shard) for lane in wanted}:
        for page in lane_pages(queues.store, queue, shard, until_bucket=EVER):
            found |= wanted.intersection(pointer.lane for pointer in page.pointers)
    return found


def _list_again(queues: Queues, job: Job) -> bool:
    """Move a lane's first job forward by nothing to speak of: whoever does so lists the lane.

    The verdict names the token that was read: if anybody has touched the job, it is not hidden.
    """
    at_us = job.at_us - 1
    width_us = queues.catalog.settings(living_queue(job.lane.queue)).width_us
    move = Move(job, at_us, queues.ids.token(), bucket_of(at_us, width_us), job.errors, job.crashes,
                job.alone, job.state, job.outcome, job.error)  # fmt: skip
    is_moved = queues.store.settle([move])[0]
    if is_moved:
        queues.wake([place_of(move)])
    return is_moved


def _finding(queues: Queues, job: Job) -> Finding:
    return Finding(queues.time.latest_us(), *job.lane, job=job.id.hex(), due_us=job.due_us)
