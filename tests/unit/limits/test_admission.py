"""How long a call waits for room in a quota, and what a process remembers of quotas."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from dueline.core.clock import DAY_US, SECOND_US
from dueline.core.errors import QuotaExceeded
from dueline.core.pagination import lane_pages
from dueline.core.queue_settings import Quota
from dueline.core.store import LanePage, Store
from dueline.jobs.queue import EnqueueRequest
from dueline.limits import admission, quota
from dueline.limits.admission import _Gate, waiting_jobs
from tests.harness.quotas import enqueue
from tests.harness.world import World, world_on


@pytest.fixture
def world() -> World:
    return world_on("memory", Path())


def refused(world: World, count: int) -> QuotaExceeded:
    with pytest.raises(QuotaExceeded) as error:
        world.queues.enqueue(EnqueueRequest("q", "t", 0, [b"[1]"] * count))
    return error.value


def test_a_call_waits_for_room_that_comes_just_in_time(world: World) -> None:
    quota.set_quota(world.queues.engine, "q", Quota(rate=2, per_us=10 * SECOND_US))
    assert enqueue(world.queues, 2) == 2
    room_s, began_us = refused(world, 1).retry_after, world.now_us
    assert room_s is not None
    assert enqueue(world.queues, wait_s=room_s - 1e-6) == 0
    assert world.now_us == began_us
    assert enqueue(world.queues, wait_s=room_s) == 1
    assert world.now_us == began_us + round(room_s * SECOND_US)


@pytest.mark.parametrize(
    ("again_s", "slept_s"), [(0.0, [0.01] * 3), (0.002, [0.01] * 3), (0.01, [0.01] * 3),
                             (0.4, [0.4] * 2), (0.3, [0.3] * 3), (0.5, [0.5] * 2),
                             (1.0, [1.0]), (1.1, [])]
)  # fmt: skip
@pytest.mark.parametrize("counts", [False, True])
def test_a_call_tries_again_as_often_as_there_may_be_room(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    again_s: float,
    slept_s: list[float],
    *,
    counts: bool,
) -> None:
    wait_s, tries = 1, 4
    taken: list[int] = []

    def take(_queue: str, _tenant: str, _count: int, now_us: int) -> None:
        taken.append(now_us)
        if len(taken) < tries:
            error = QuotaExceeded("full")
            error.retry_after = 60 if counts else again_s
            error.counts_after = again_s if counts else None
            raise error

    monkeypatch.setattr(world.queues.admission, "_take_all", take)
    with suppress(QuotaExceeded):
        world.queues.admission.admit("q", "t", 1, wait_us=wait_s * SECOND_US)
    assert world.clock.slept == pytest.approx(slept_s)


def test_a_call_that_never_has_room_does_not_wait(world: World) -> None:
    for one in (Quota(depth=3), Quota("tenant", "", rate=3, per_us=SECOND_US)):
        quota.set_quota(world.queues.engine, "q", one)
    assert (refused(world, 4).retry_after, refused(world, 4).counts_after) == (None, None)
    assert enqueue(world.queues, 4, wait_s=60) == 0
    assert world.clock.slept == []
    assert enqueue(world.queues, 3) == 3


def test_the_bound_that_refuses_is_named(world: World) -> None:
    quota.set_quota(world.queues.engine, "q", Quota(depth=3, rate=2, per_us=10 * SECOND_US))
    assert enqueue(world.queues, 2) == 2
    assert "has used up its rate of 2 job(s) in 10s" in str(refused(world, 1))
    assert "at most 3 waiting job(s) (it has 2)" in str(refused(world, 2))


def test_what_is_left_of_a_span_is_dropped_after_it() -> None:
    gate = _Gate(left=3, until_us=100, used=5, before=2)
    gate.move_on(100, 110, 10)
    assert (gate.left, gate.until_us, gate.used, gate.before) == (3, 100, 5, 2)
    for now_us, before in ((101, 5), (110, 5), (111, 0)):
        gate = _Gate(left=3, until_us=100, used=5, before=2)
        gate.move_on(now_us, 110, 10)
        assert (gate.left, gate.until_us, gate.used, gate.before) == (0, 110, 0, before)


def test_quotas_of_many_tenants_are_not_all_remembered(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admission, "GATES_MAX", 3)
    quota.set_quota(world.queues.engine, "q", Quota("each", depth=5))
    counts: list[int] = []
    for tenant in "abcdbe":
        assert enqueue(world.queues, tenant=tenant) == 1
        counts.append(len(world.queues.admission._gates))
    assert counts == [1, 2, 3, 1, 2, 3]
    assert enqueue(world.queues, tenant="e") == 1
    assert len(world.queues.admission._gates) == 3


def test_jobs_wait_until_they_are_claimed_and_again_when_the_lease_has_ended(world: World) -> None:
    quota.set_quota(world.queues.engine, "q", Quota(depth=1))
    assert enqueue(world.queues) == 1
    (job,) = waiting_jobs(world.store, "q", 1, Quota(depth=1))
    lease_end_us = world.claim(job.id).at_us
    world.clock.advance(us=lease_end_us - 1 - world.now_us)
    assert enqueue(world.queues) == 1
    (other,) = {one.id for one in waiting_jobs(world.store, "q", 1, Quota(depth=1))} - {job.id}
    assert world.queues.cancel(other)
    world.clock.advance(us=1)
    assert enqueue(world.queues) == 0


def test_a_claimed_job_waits_again_at_the_very_end_of_its_lease(world: World) -> None:
    quota.set_quota(world.queues.engine, "q", Quota(depth=1))
    job = world.claim(world.put())
    world.clock.advance(us=job.at_us - world.now_us)
    assert enqueue(world.queues) == 0


def test_jobs_that_are_due_later_wait_too(world: World) -> None:
    quota.set_quota(world.queues.engine, "q", Quota(depth=2))
    world.put()
    world.put(after_s=3 * DAY_US / SECOND_US)
    assert enqueue(world.queues) == 0


def test_a_lane_that_a_sweep_lists_anew_is_counted_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def pages(store: Store, queue: str, shard: int, *, until_bucket: int) -> Iterator[LanePage]:
        yield from 2 * list(lane_pages(store, queue, shard, until_bucket=until_bucket))

    quota.set_quota(world.queues.engine, "q", Quota(depth=3))
    world.put()
    world.put(priority=1)
    monkeypatch.setattr(admission, "lane_pages", pages)
    assert len(list(waiting_jobs(world.store, "q", 1, Quota(depth=3)))) == 2


def test_a_refused_call_is_told_when_jobs_are_counted_again(world: World) -> None:
    quota.set_quota(world.queues.engine, "q", Quota(depth=3))
    assert enqueue(world.queues) == 1
    error = refused(world, 3)
    assert error.counts_after == pytest.approx(admission.AGAIN_US_MIN / SECOND_US)
    assert "at most 3 waiting job(s) (it has 1)." in str(error)
    assert "This call has" not in str(error), "three at once are allowed"


@pytest.mark.parametrize("late_us", [0, 1])
def test_jobs_taken_ahead_of_the_queues_quota_are_used_until_their_end(
    world: World, late_us: int
) -> None:
    for one in (Quota("each", depth=9), Quota(rate=2, per_us=10 * SECOND_US)):
        quota.set_quota(world.queues.engine, "q", one)
    assert enqueue(world.queues, 2, tenant="a") == 2
    assert enqueue(world.queues, 1, tenant="a") == 0
    gate = world.queues.admission._gate("q", Quota(rate=2, per_us=10 * SECOND_US))
    gate.left, gate.until_us = 1, world.now_us - late_us
    assert enqueue(world.queues, 1, tenant="a") == (not late_us)
