"""How many jobs a queue takes in, in all, in a time, and of each tenant."""

import random
from bisect import bisect_left
from collections.abc import Sequence
from typing import Any

import pytest

from dueline.core.clock import SECOND_US
from dueline.core.errors import BadInput, QuotaExceeded
from dueline.core.lane import Lane
from dueline.core.queue_settings import (
    QUOTAS_MAX,
    QueueSettings,
    Quota,
    check_settings,
    quotas_on,
    with_quota,
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


def refused(world: World, count: int = 1) -> float:
    """Be refused, and return when to try again."""
    with pytest.raises(QuotaExceeded) as error:
        world.queues.enqueue(EnqueueRequest("q", "t", 0, [b"[1]"] * count))
    assert error.value.retry_after is not None
    return error.value.retry_after


CALLS_MAX = 40


# --- how many wait ------------------------------------------------------------------------------


def test_no_more_jobs_wait_than_the_depth_allows_and_there_is_room_once_some_run(
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


def test_a_depth_tells_when_there_is_probably_room(world: World) -> None:
    """Obey a depth of which nothing leaves, then one of which a job leaves every four seconds."""
    # F9
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


def test_those_for_later_wait_too(world: World) -> None:
    quota.set_quota(world.queues.engine, "q", DEPTH)
    for _ in range(5):
        world.put(after_s=3600)
    assert enqueue(world.queues) == 0


def test_a_call_of_many_is_stored_whole_or_not_at_all(world: World) -> None:
    quota.set_quota(world.queues.engine, "q", DEPTH)
    assert enqueue(world.queues, 3) == 3
    assert enqueue(world.queues, 3) == 0
    assert len(waiting(world)) == 3
    with pytest.raises(QuotaExceeded, match="This call has 6") as error:
        world.queues.enqueue(EnqueueRequest("q", "t", 0, [b"[1]"] * 6))
    assert error.value.retry_after is None
    assert enqueue(world.queues, 2) == 2


@pytest.mark.long
def test_several_who_race_stay_within_the_depth(world: World) -> None:
    # F9, rules N6 and N7
    quota.set_quota(world.queues.engine, "q", Quota(depth=100))  # a process takes one ahead
    racers = [world.other() for _ in range(5)]
    chance, stored, refused = random.Random(3), 0, 0
    for _ in range(80):
        world.clock.advance(us=chance.choice([0, 1_000, 20_000, 150_000]))
        asked = chance.randrange(1, 25)
        got = enqueue(chance.choice(racers), asked)
        stored, refused = stored + got, refused + (got == 0)
        waits = waiting(world)
        assert len(waits) <= 100
        if chance.random() < 0.1:
            for lane in {job.lane for job in waits}:
                world.claim(next(job for job in waits if job.lane == lane).id)
    assert stored > 200
    assert refused > 10


def test_who_counts_leaves_nothing_out_that_came_meanwhile(world: World) -> None:
    """Put jobs in while another process counts, behind where it has read."""
    # rule N7
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


def test_what_another_process_has_taken_ahead_is_not_given_twice(world: World) -> None:
    """Rule N7: a count leaves out what is taken ahead and not used yet, whatever came since."""
    quota.set_quota(world.queues.engine, "q", Quota(depth=1000))
    first, second = world.other(), world.other()
    world.clock.advance(us=1)  # the beginning of a span of GRAIN_US
    assert sum(enqueue(first) for _ in range(20)) == 20
    world.clock.advance(us=quota.GRAIN_US)
    assert enqueue(first) == 1  # and ten ahead, as it used 20 just before
    assert enqueue(second) == 1
    later(world)
    assert enqueue(second, 1000 - 32 + 1) == 0  # counts
    assert enqueue(second, 1000 - 32) == 1000 - 32
    assert sum(enqueue(first) for _ in range(20)) == 10
    assert len(waiting(world)) == 1000


def test_jobs_are_counted_seldom_and_not_for_each_call(world: World) -> None:
    quota.set_quota(world.queues.engine, "q", Quota(depth=50))
    counts: list[int] = []
    scan = world.store.scan

    def counting(*args: object, **named: object) -> JobPage:
        counts.append(1)
        return scan(*args, **named)  # type: ignore[arg-type]

    world.store.scan = counting  # type: ignore[method-assign]
    assert sum(enqueue(world.queues) for _ in range(70)) == 50
    assert len(counts) == 0  # an empty queue has no lane to read
    later(world)
    for _ in range(20):
        assert enqueue(world.queues) == 0
    assert len(counts) == 1


def test_a_call_that_just_fits_counts_no_jobs(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    quota.set_quota(world.queues.engine, "q", DEPTH)
    assert enqueue(world.queues, 2) == 2
    later(world)
    with monkeypatch.context() as patch:
        patch.setattr(world.store, "scan", None)
        assert enqueue(world.queues, 3) == 3


def test_what_is_taken_ahead_is_not_given_away_in_its_last_moment(world: World) -> None:
    """Rule N8: it is used until then, and no longer."""
    quota.set_quota(world.queues.engine, "q", Quota(depth=1000))
    first, second = world.other(), world.other()
    world.clock.advance(us=1)
    assert sum(enqueue(first) for _ in range(20)) == 20
    world.clock.advance(us=quota.GRAIN_US)
    assert enqueue(first) == 1  # and ten ahead
    world.clock.advance(us=quota.GRAIN_US - 1)
    assert enqueue(second) == 1
    later_call = 1000 - 32
    assert enqueue(second, later_call + 1) == 0
    assert enqueue(second, later_call) == later_call
    assert sum(enqueue(first) for _ in range(11)) == 10


def test_a_count_is_worth_a_minute(world: World) -> None:
    # for what comes to wait without a call, as what schedules store
    quota.set_quota(world.queues.engine, "q", DEPTH)
    assert enqueue(world.queues) == 1
    ids = world.queues.engine.ids
    world.store.add(
        [
            job._replace(id=ids.many(1, 5)[0], pos_us=job.pos_us + n)
            for n, job in enumerate(waiting(world) * 4)
        ]
    )
    assert enqueue(world.queues) == 1
    world.clock.advance(61)
    assert enqueue(world.queues) == 0


# --- how many come in a time --------------------------------------------------------------------


@pytest.mark.long
def test_no_span_has_more_than_the_rate_allows(world: World) -> None:
    """Put jobs in from several processes, one by one, now many and now few."""
    # F9, rules N6 and N8
    quota.set_quota(world.queues.engine, "q", Quota(rate=1000, per_us=10 * SECOND_US))
    racers = [world.other() for _ in range(4)]
    chance, came = random.Random(5), list[int]()
    for _ in range(100):
        world.clock.advance(us=chance.choice([0, 20_000, 100_000, 250_000]))
        racer = chance.choice(racers[:2] if chance.random() < 0.7 else racers)
        for _ in range(chance.randrange(1, 30)):
            came += [world.now_us] * enqueue(racer)
    for place, at_us in enumerate(came):
        assert bisect_left(came, at_us + 10 * SECOND_US) - place <= 1000
    assert len(came) > 0.9 * 1000 * (came[-1] - came[0]) / (10 * SECOND_US)


def test_what_was_taken_ahead_lapses(world: World) -> None:
    """Take some ahead, let the span pass, let another take all."""
    # rule N8
    quota.set_quota(world.queues.engine, "q", Quota(rate=1000, per_us=10 * SECOND_US))
    assert [enqueue(world.queues) for _ in range(20)] == [1] * 20
    world.clock.advance(us=SECOND_US // 10)
    assert enqueue(world.queues) == 1  # and ten ahead
    world.clock.advance(11)
    assert enqueue(world.other(), 1000) == 1000
    assert enqueue(world.queues) == 0


def test_two_who_looked_at_once_take_no_more_than_there_is(world: World) -> None:
    """Put jobs in while another process has read what is left, and not yet written."""
    # rule N6
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


def test_a_rate_tells_when_there_is_room(world: World) -> None:
    quota.set_quota(world.queues.engine, "q", OFTEN)
    assert enqueue(world.queues, 5) == 5
    with pytest.raises(QuotaExceeded, match=r"has used up its rate of 5 job\(s\) in 1m\.") as error:
        world.put()
    assert error.value.retry_after is not None
    assert 59 < error.value.retry_after <= 61
    world.clock.advance(error.value.retry_after)
    assert enqueue(world.queues, 5) == 5


# --- whose jobs ---------------------------------------------------------------------------------


def test_a_tenant_has_its_own_quota_or_that_of_each_and_all_share_the_queues(
    world: World,
) -> None:
    # F9
    for rule in (
        Quota(depth=9),
        Quota("each", depth=2),
        Quota("tenant", "big", depth=4),
        Quota("tenant", "", depth=1),
    ):
        quota.set_quota(world.queues.engine, "q", rule)
    taken = {name: sum(enqueue(world.queues, tenant=name) for _ in range(6))
             for name in ("a", "big", "", "b", "c")}  # fmt: skip
    assert taken == {"a": 2, "big": 4, "": 1, "b": 2, "c": 0}


def test_quotas_of_a_tenant_are_found_among_all() -> None:
    each, own, whole = Quota("each", depth=1), Quota("tenant", "a", depth=2), Quota(depth=3)
    assert quotas_on([each, own, whole], "a") == [own, whole]
    assert quotas_on([each, own, whole], "b") == [Quota("tenant", "b", depth=1), whole]
    assert quotas_on([each, own, whole], "") == [whole]
    assert with_quota([each, own], own._replace(depth=5)) == (each, own._replace(depth=5))
    assert with_quota([each, own], own._replace(depth=0)) == (each,)


def test_what_is_refused_to_one_is_not_taken_of_what_is_for_all(world: World) -> None:
    # rule N6
    quota.set_quota(world.queues.engine, "q", Quota(rate=6, per_us=60 * SECOND_US))
    quota.set_quota(world.queues.engine, "q", Quota("each", rate=3, per_us=60 * SECOND_US))
    assert sum(enqueue(world.queues, tenant="a") for _ in range(50)) == 3
    assert sum(enqueue(world.queues, tenant="b") for _ in range(50)) == 3
    assert enqueue(world.queues, tenant="c") == 0
    quota.set_quota(world.queues.engine, "q", Quota())
    later(world)
    assert sum(enqueue(world.other(), tenant="c") for _ in range(9)) == 3  # c lost none of its own


def test_quotas_that_cannot_be_are_refused() -> None:
    for wrong in (
        Quota(depth=-1),
        Quota(rate=5),
        Quota(rate=5, per_us=SECOND_US // 1000),
        Quota(depth=2.5),  # type: ignore[arg-type]
    ):
        with pytest.raises(BadInput):
            check_settings(QueueSettings(quotas=(wrong,)))
    many = tuple(Quota("tenant", f"{n}", depth=1) for n in range(QUOTAS_MAX + 1))
    with pytest.raises(BadInput):
        check_settings(QueueSettings(quotas=many))


# --- waiting for room ---------------------------------------------------------------------------


def test_a_call_waits_for_room_and_no_longer_than_it_was_told(world: World) -> None:
    quota.set_quota(world.queues.engine, "q", OFTEN)
    assert enqueue(world.queues, 5) == 5
    began_us = world.now_us
    assert enqueue(world.queues, wait_s=5) == 0
    assert world.now_us == began_us  # it would have been of no use
    assert enqueue(world.queues, wait_s=90) == 1
    assert 59 < (world.now_us - began_us) / SECOND_US < 62


def test_a_call_waits_until_some_jobs_run(world: World) -> None:
    quota.set_quota(world.queues.engine, "q", DEPTH)
    assert enqueue(world.queues, 5) == 5
    began_us, sleep = world.now_us, world.clock.sleep

    def work(seconds: float) -> None:
        sleep(seconds)
        if len(world.clock.slept) == 3:
            world.claim(waiting(world)[0].id)

    world.clock.sleep = work  # type: ignore[method-assign]
    assert enqueue(world.queues, wait_s=5) == 1
    assert len(world.clock.slept) == 3
    assert enqueue(world.queues, 5, wait_s=0.2) == 0
    assert (world.now_us - began_us) / SECOND_US < 1
