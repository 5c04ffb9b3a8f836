"""Lane lists of which only what may be new is read again."""

from collections.abc import Callable
from typing import Any

import pytest

from dueline.core.clock import SECOND_US
from dueline.core.job import Job, JobId
from dueline.core.lane import GUARD_US, Marks, Pointer, bucket_of
from dueline.core.queue_settings import QueueSettings
from dueline.core.store import Drop, LanePage, Lease, Move, Want
from dueline.jobs.queue import EnqueueRequest, Queues
from dueline.worker.claimer import Claimer
from dueline.worker.lane_list import FEW, SWEEP_EVERY_US, SWEEP_SHARE, WHOLE_EVERY_US, LaneListCache
from tests.harness.clocks import HandClock
from tests.harness.cluster import Cluster
from tests.harness.failing_store import FailingStore
from tests.harness.interleaving import Act, Turns, every_order
from tests.harness.marks import long_but
from tests.harness.queues import queues_on
from tests.harness.stepped_store import SteppedMemoryStore

WIDTH_US = 10 * SECOND_US
SETTINGS = QueueSettings(width_us=WIDTH_US, history="off")


LEASE_US = SETTINGS.lease_us
BUCKETS = 3 * FEW
"""So many lanes lie below `closed`."""


class Counting(FailingStore):
    """Counts the pointers that were read, and the lanes that were visited."""

    def __init__(self, store: SteppedMemoryStore) -> None:
        super().__init__(store, {})
        self.pointers = self.visits = 0

    def lanes(
        self, queue: str, shard: int, *, until_bucket: int, after: Pointer | None, limit: int
    ) -> LanePage:
        page = super().lanes(queue, shard, until_bucket=until_bucket, after=after, limit=limit)
        self.pointers += len(page.pointers)
        return page

    def claim(self, wants, **how):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN003, ANN201
        self.visits += len(wants)
        return super().claim(wants, **how)


def nothing(_step: str) -> None:
    """Let a step happen."""


def engine_of(
    clock: HandClock, cluster: Cluster, step: Callable[[str], None] = nothing
) -> tuple[Queues, Counting]:
    """Make the engine of one process, on the model without transactions."""
    store = Counting(SteppedMemoryStore(clock, cluster=cluster, step=step))
    queues = queues_on(store, clock, SETTINGS)
    queues.engine.time.latest_us()
    return queues, store


def put(queues: Queues, at_us: int) -> JobId:
    """Enqueue a job that was due at some time."""
    return queues.enqueue(EnqueueRequest("q", "t", 0, [b"[1]"], at_us))[0].id


def sweep(queues: Queues) -> None:
    """Close what is past."""
    queues.engine.store.sweep("q", 0, now_us=queues.engine.time.latest_us(), width_us=WIDTH_US)


def backlog(queues: Queues, clock: HandClock, lanes: int = BUCKETS) -> list[JobId]:
    """Put a job into each of some lanes, and close them."""
    ids = []
    for _ in range(lanes):
        ids.append(put(queues, clock.wall_us()))
        clock.advance(us=WIDTH_US)
    clock.advance(us=GUARD_US)
    sweep(queues)
    return ids


def take(queues: Queues, job_id: JobId, worker: str = "other") -> Job:
    """Have another worker claim a job's lane."""
    row = queues.find(job_id).row
    assert row is not None
    claimed = queues.engine.store.claim(
        [Want(row.lane, 9)],
        limit=9,
        lease=Lease(queues.engine.time.earliest_us(), LEASE_US, worker, queues.engine.ids.token()),
    )
    return next(job for job in claimed.jobs if job.id == job_id)


def release(queues: Queues, job: Job) -> None:
    """Give a job back, to be run at once."""
    now_us = queues.engine.time.latest_us()
    move = Move(job, now_us, queues.engine.ids.token(), bucket_of(now_us, WIDTH_US), 0, 0)
    assert queues.engine.store.settle([move]) == [True]


def claim(claimer: Claimer, limit: int = 100) -> set[JobId]:
    """Claim what is known to be due."""
    job_ids: set[JobId] = set()
    while len(job_ids) < limit and (taken := claimer.claim(limit - len(job_ids), {})):
        job_ids |= {claimed.job.id for claimed in taken}
    return job_ids


Begin = Callable[[HandClock, Queues, Claimer], tuple[JobId, Act]]
"""Brings a worker to where it has looked once; gives a job, and how another gives it back."""


def while_it_looks_twice(begin: Begin, switches_max: int, *, then_us: int = 0) -> int:
    """Let a job be given back while a worker looks twice; so much later it looks once more."""

    def lead(turns: Turns) -> None:
        clock, cluster = HandClock(), Cluster()
        mine, _ = engine_of(clock, cluster, turns.step)
        other, _ = engine_of(clock, cluster, turns.step)
        claimer = Claimer(mine.engine, ["q"], "w1")
        job_id, give_back = begin(clock, other, claimer)
        job_ids: set[JobId] = set()

        def look_twice() -> None:
            for _ in range(2):
                claimer.refresh()
                job_ids.update(claim(claimer))

        turns.run([look_twice, give_back])
        clock.advance(us=then_us)
        claimer.refresh()
        assert job_id in job_ids | claim(claimer)

    return every_order(lead, switches_max=switches_max)


def a_job_comes_back(switches_max: int = 3) -> int:
    """Let a claimed job be given back, and its bucket be closed, while a worker looks."""

    def begin(clock: HandClock, other: Queues, claimer: Claimer) -> tuple[JobId, Act]:
        backlog(other, clock, FEW)
        claimer.refresh()
        claim(claimer)
        job = take(other, put(other, clock.wall_us()))

        def give_back_and_close() -> None:
            release(other, job)
            clock.advance(us=WIDTH_US + GUARD_US)
            sweep(other)

        return job.id, give_back_and_close

    return while_it_looks_twice(begin, switches_max)


def a_job_of_a_known_lane_comes_back(switches_max: int = 3) -> int:
    """Let a job of a lane that was closed long ago be given back while a worker looks."""

    def begin(clock: HandClock, other: Queues, claimer: Claimer) -> tuple[JobId, Act]:
        job, *_ = [take(other, job_id) for job_id in backlog(other, clock, FEW)]
        claimer.refresh()
        claim(claimer)
        return job.id, lambda: release(other, job)

    # What is remembered of lanes is read anew by then (rule R3).
    return while_it_looks_twice(begin, switches_max, then_us=LEASE_US // 2 + 1)


def a_job_is_born(switches_max: int = 3) -> int:
    """Let a job be put, and its bucket be closed, while a worker looks."""

    def lead(turns: Turns) -> None:
        clock, cluster = HandClock(), Cluster()
        mine, _ = engine_of(clock, cluster, turns.step)
        other, _ = engine_of(clock, cluster, turns.step)
        backlog(other, clock, FEW)
        claimer = Claimer(mine.engine, ["q"], "w1")
        claimer.refresh()
        ids: list[JobId] = []

        def put_and_close() -> None:
            ids.append(put(other, clock.wall_us()))
            clock.advance(us=2 * WIDTH_US + GUARD_US)
            sweep(other)

        turns.run([claimer.refresh, put_and_close])
        claimer.refresh()
        assert ids[0] in claim(claimer)

    return every_order(lead, switches_max=switches_max)


def test_what_is_closed_is_not_read_again_and_what_is_new_is_seen(clock: HandClock) -> None:
    queues, store = engine_of(clock, Cluster())
    backlog(queues, clock)
    claimer = Claimer(queues.engine, ["q"], "w1")
    claimer.refresh()
    assert store.pointers >= BUCKETS
    read = store.pointers
    claimer.refresh()
    assert store.pointers == read
    new = put(queues, clock.wall_us())
    claimer.refresh()
    assert store.pointers == read + 1
    assert new in claim(claimer)


def test_a_short_list_is_read_whole(clock: HandClock) -> None:
    queues, store = engine_of(clock, Cluster())
    backlog(queues, clock, FEW - 3)
    sweep(queues)  # now that something is closed the other mark is raised, too
    claimer = Claimer(queues.engine, ["q"], "w1")
    claimer.refresh()
    read = store.pointers
    claimer.refresh()
    assert store.pointers == 2 * read


def test_lanes_that_turned_out_to_be_empty_are_not_visited_again(clock: HandClock) -> None:
    queues, store = engine_of(clock, Cluster())
    ids = backlog(queues, clock)
    claimer = Claimer(queues.engine, ["q"], "w1")
    claimer.refresh()
    for job_id in ids[1:]:
        queues.cancel(job_id)
    assert claim(claimer, 1)
    assert not claim(claimer)
    visits = store.visits
    claimer.refresh()
    assert not claim(claimer)
    assert store.visits == visits


def test_the_whole_list_is_read_now_and_then(clock: HandClock) -> None:
    queues, store = engine_of(clock, Cluster())
    backlog(queues, clock)
    claimer = Claimer(queues.engine, ["q"], "w1")
    claimer.refresh()
    read = store.pointers
    clock.advance(us=WHOLE_EVERY_US + WIDTH_US)
    claimer.refresh()
    assert store.pointers >= 2 * read


def test_a_look_that_failed_leaves_nothing_that_is_known(clock: HandClock) -> None:
    queues, store = engine_of(clock, Cluster())
    backlog(queues, clock)
    claimer = Claimer(queues.engine, ["q"], "w1")
    claimer.refresh()
    read = store.pointers
    queues.engine.catalog.forget("q")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(queues.engine.catalog, "is_current", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            claimer.refresh()
    claimer.refresh()
    assert store.pointers >= 2 * read


def test_a_job_that_is_given_back_is_seen_at_the_next_look(clock: HandClock) -> None:
    queues, _ = engine_of(clock, Cluster())
    ids = backlog(queues, clock)
    theirs = [take(queues, job_id) for job_id in ids]
    claimer = Claimer(queues.engine, ["q"], "w1")
    claimer.refresh()
    assert not claim(claimer)
    claimer.refresh()
    release(queues, theirs[0])
    claimer.refresh()
    assert claim(claimer) == {ids[0]}


def test_a_claim_that_lapses_is_seen_when_it_does(clock: HandClock) -> None:
    queues, _ = engine_of(clock, Cluster())
    ids = backlog(queues, clock)
    for job_id in ids:
        take(queues, job_id)
    claimer = Claimer(queues.engine, ["q"], "w1")
    claimer.refresh()
    assert not claim(claimer)
    clock.advance(us=LEASE_US + 1)
    claimer.refresh()
    assert claim(claimer) == set(ids)


def test_lanes_are_swept_when_some_are_empty_or_a_few_for_long(clock: HandClock) -> None:
    queues, store = engine_of(clock, Cluster())
    backlog(queues, clock)
    lane_list = LaneListCache("q", 0)
    today = bucket_of(clock.wall_us(), WIDTH_US)
    lane_list.read(store, {}, until_bucket=today, now_us=clock.wall_us())
    now_us = clock.wall_us()
    assert not lane_list.is_sweep_due(1, now_us), "who has just come leaves that to others"
    now_us += SWEEP_EVERY_US
    assert lane_list.is_sweep_due(1, now_us)
    lane_list.swept(now_us, now_us + 1)
    now_us += SWEEP_EVERY_US
    assert not lane_list.is_sweep_due(1, now_us), "a few of many are let be for a while"
    assert lane_list.is_sweep_due(BUCKETS // SWEEP_SHARE, now_us)
    assert not lane_list.is_sweep_due(0, now_us + SWEEP_EVERY_US)
    assert lane_list.is_sweep_due(1, now_us + SWEEP_EVERY_US)
    lane_list.swept(now_us, now_us + SWEEP_EVERY_US)
    assert not lane_list.is_sweep_due(1, now_us + 20 * SWEEP_EVERY_US), "it takes long"
    assert lane_list.is_sweep_due(1, now_us + 21 * SWEEP_EVERY_US)


def test_a_lane_that_a_sweep_would_leave_asks_for_none(
    clock: HandClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    queues, store = engine_of(clock, Cluster())
    (job,) = store.find([put(queues, clock.wall_us())])
    assert job is not None
    store.settle([Drop(job)])
    swept_us: list[int] = []
    sweep_of = store.sweep

    def noted(*place: Any, **now: Any) -> Marks:  # noqa: ANN401  (as it is called)
        swept_us.append(now["now_us"])
        return sweep_of(*place, **now)

    monkeypatch.setattr(store, "sweep", noted)
    claimer = Claimer(queues.engine, ["q"], "w1")
    claimer.refresh()
    ends_us = (job.lane.bucket + 1) * WIDTH_US
    for _ in range(40):
        clock.advance(us=WIDTH_US // 20)
        claimer._rota.visited({job.lane: None})
        claimer.refresh()
    assert 0 < len(swept_us) <= 3
    assert min(swept_us) >= ends_us + GUARD_US


# --- a worker that looks, and others, in every order of their steps ----------------------------


@pytest.mark.long
@pytest.mark.no_cover  # thousands of orders of the same
@pytest.mark.parametrize("switches_max", long_but([2, 3], 2))
@pytest.mark.parametrize(
    "race", [a_job_comes_back, a_job_of_a_known_lane_comes_back, a_job_is_born]
)
def test_nothing_is_passed_over(race: Callable[[int], int], switches_max: int) -> None:
    # H1
    assert race(switches_max) > 20
