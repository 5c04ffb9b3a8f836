"""Lane lists of which only what may be new is read again."""

from collections.abc import Callable
from typing import Any

import pytest

from dueline.core.lane import GUARD_US, Marks, bucket_of
from dueline.core.store import Drop
from dueline.worker.claimer import Claimer
from dueline.worker.lane_list import FEW, SWEEP_EVERY_US, SWEEP_SHARE, WHOLE_EVERY_US, LaneListCache
from tests.harness.cases.worker_roll import (
    BUCKETS,
    LEASE_US,
    WIDTH_US,
    a_job_comes_back,
    a_job_is_born,
    a_job_of_a_known_lane_comes_back,
    backlog,
    claim,
    engine_of,
    put,
    release,
    sweep,
    take,
)
from tests.harness.clocks import HandClock
from tests.harness.cluster import Cluster
from tests.harness.marks import long_but


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
