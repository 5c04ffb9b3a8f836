"""How many jobs a queue takes in, in all, in a time, and of each tenant."""

from collections.abc import Sequence
from typing import Any

import pytest

from dueline.core.clock import SECOND_US
from dueline.core.errors import QuotaExceeded
from dueline.core.lane import Lane
from dueline.core.queue_settings import (
    Quota,
)
from dueline.core.store import JobPage, Record
from dueline.jobs.queue import EnqueueRequest
from dueline.limits import quota
from dueline.limits.admission import AGAIN_US_MIN
from tests.harness.quotas import DEPTH, enqueue, waiting
from tests.harness.world import World

OFTEN = Quota(rate=5, per_us=60 * SECOND_US)


def later(world: World) -> None:
    """Let so much time pass that jobs may be counted again."""
    world.clock.advance(us=AGAIN_US_MIN)


def no_more_jobs_wait_than_the_depth_allows_and_there_is_room_once_some_run(
    world: World,
) -> None:
    # F9
    world.put()  # before there was a quota
    quota.set_quota(world.queues.engine, "q", DEPTH)
    assert [enqueue(world.queues) for _ in range(6)] == [1, 1, 1, 1, 0, 0]
    with pytest.raises(
        QuotaExceeded, match=r"The queue q may have at most 5 waiting job\(s\) \(it has 5\)"
    ):
        world.put()
    world.claim(waiting(world)[0].id)  # all in its lane
    later(world)
    assert enqueue(world.queues, 5) == 5
    assert len(waiting(world)) == 5


def what_came_meanwhile_is_counted(world: World) -> None:
    """Put jobs in while another process counts, behind where it has read."""
    quota.set_quota(world.queues.engine, "q", DEPTH)
    world.put()
    later(world)
    slow = world.other()
    scan, done = world.store.scan, list[int]()

    def pause(lane: Lane, **terms: Any) -> JobPage:  # noqa: ANN401
        page: JobPage = scan(lane, **terms)
        if not done:
            done.append(1)
            assert enqueue(world.other(), 3) == 3
        return page

    slow.engine.store.scan = pause  # type: ignore[method-assign]
    assert enqueue(slow, 5) == 0
    slow.engine.store.scan = scan  # type: ignore[method-assign]
    assert done
    assert enqueue(slow, 2) == 0
    assert enqueue(slow) == 1
    assert enqueue(slow) == 0


def what_was_taken_ahead_lapses(world: World) -> None:
    """Take some ahead, let the span pass, let another take all."""
    quota.set_quota(world.queues.engine, "q", Quota(rate=1000, per_us=10 * SECOND_US))
    assert [enqueue(world.queues) for _ in range(20)] == [1] * 20
    world.clock.advance(us=SECOND_US // 10)
    assert enqueue(world.queues) == 1  # and ten ahead
    world.clock.advance(11)
    assert enqueue(world.other(), 1000) == 1000
    assert enqueue(world.queues) == 0


def two_who_look_at_once(world: World) -> None:
    """Put jobs in while another process has read what is left, and not yet written."""
    quota.set_quota(world.queues.engine, "q", OFTEN)
    slow, begun, done, read = world.other(), list[int](), list[int](), world.store.read

    def pause(partition: str, *, after: str | None, limit: int) -> Sequence[Record]:
        records = read(partition, after=after, limit=limit)
        if partition == "quotas/q" and not begun:
            begun.append(1)
            done.append(enqueue(world.other(), 3))
        return records

    slow.engine.store.read = pause  # type: ignore[method-assign]
    assert enqueue(slow, 3) == 0
    slow.engine.store.read = read  # type: ignore[method-assign]
    assert done == [3]
    assert enqueue(slow, 2) == 2


def refused(world: World, count: int = 1) -> float:
    """Be refused, and return when to try again."""
    with pytest.raises(QuotaExceeded) as error:
        world.queues.enqueue(EnqueueRequest("q", "t", 0, [b"[1]"] * count))
    assert error.value.retry_after is not None
    return error.value.retry_after


def a_depth_tells_when_there_is_probably_room(world: World) -> None:
    """Obey a depth of which nothing leaves, then one of which a job leaves every four seconds."""
    quota.set_quota(world.queues.engine, "q", Quota(depth=50))
    ids = [world.put() for _ in range(50)]
    waits = []
    for _ in range(8):
        waits.append(refused(world))
        world.clock.advance(waits[-1])
    assert waits[0] >= 1
    assert waits == sorted(waits)
    assert waits[-1] == quota.ROOM_US_MAX / SECOND_US
    for job_id in ids[:20]:
        world.queues.cancel(job_id)
    assert enqueue(world.queues, 20) == 20
    refused(world)
    for job_id in ids[20:30]:
        world.clock.advance(4)
        world.queues.cancel(job_id)
        assert enqueue(world.queues) == 1
        assert refused(world) <= 5
    assert 7 < refused(world, 2) < 9
    assert refused(world, 20) == quota.ROOM_US_MAX / SECOND_US


def a_rate_tells_when_there_is_room(world: World) -> None:
    quota.set_quota(world.queues.engine, "q", OFTEN)
    assert enqueue(world.queues, 5) == 5
    with pytest.raises(QuotaExceeded, match=r"has used up its rate of 5 job\(s\) in 1m\.") as error:
        world.put()
    assert error.value.retry_after is not None
    assert 59 < error.value.retry_after <= 61
    world.clock.advance(error.value.retry_after)
    assert enqueue(world.queues, 5) == 5


def a_tenant_has_its_own_quota_or_that_of_each_and_all_share_the_queues(
    world: World,
) -> None:
    # F9
    for one in (
        Quota(depth=9),
        Quota("each", depth=2),
        Quota("tenant", "big", depth=4),
        Quota("tenant", "", depth=1),
    ):
        quota.set_quota(world.queues.engine, "q", one)
    taken = {name: sum(enqueue(world.queues, tenant=name) for _ in range(6))
             for name in ("a", "big", "", "b", "c")}  # fmt: skip
    assert taken == {"a": 2, "big": 4, "": 1, "b": 2, "c": 0}
