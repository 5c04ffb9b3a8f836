"""The jobs that a worker would claim next."""

from collections.abc import Sequence

from dueline.core.job import Job, JobId
from dueline.core.lane import Lane
from dueline.core.store import Jobs, LanePage
from dueline.jobs.lane_planner import plan, prospects
from dueline.jobs.lane_rotation import LaneRotation


def peek(
    store: Jobs, pages: Sequence[LanePage], aging_us: int, *, now_us: int, limit: int
) -> Sequence[Job]:
    """Return due jobs, in the order in which a worker would claim them.

    Args:
        store: The store.
        pages: The lane list of one queue.
        aging_us: How long its jobs wait to gain one step of priority.
        now_us: The store's time.
        limit: Maximum number of jobs.
    """
    rota = LaneRotation()
    pointers = [pointer for page in pages for pointer in page.pointers]
    rota.renew(pointers, dict(head for page in pages for head in page.heads.items()))
    aging = {pointer.lane.queue: aging_us for pointer in pointers[:1]} if aging_us else {}
    places: dict[Lane, tuple[int, JobId]] = {}
    jobs: list[Job] = []
    turn, in_vain = 0, 0
    while len(jobs) < limit:  # as a worker claims (`Claimer.claim`)
        turn += 1
        before = len(jobs)
        first = rota.first((limit - before) << in_vain, now_us, {}, of_each=bool(aging))
        lanes = prospects(first, rota.next_at_us, now_us, aging)
        wants = plan(lanes, limit=limit - before, room={}, turn=turn)
        if not wants:
            break
        for lane, most in wants:
            room = min(most, limit - len(jobs))
            if room == 0:
                break
            page = store.scan(lane, after=places.get(lane), until_us=now_us, limit=room)
            jobs += [job for job in page.jobs if not job.outcome]
            rota.visited({lane: None if page.after is None else now_us})
            if page.after is not None:
                places[lane] = page.after
        in_vain = in_vain + 1 if len(jobs) == before else 0
    return jobs
