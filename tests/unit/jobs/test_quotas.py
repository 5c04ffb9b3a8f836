"""How many jobs a queue takes in, in all, in a time, and of each tenant."""

import random
from bisect import bisect_left

import pytest

from dueline.core.clock import SECOND_US
from dueline.core.errors import BadInput, QuotaExceeded
from dueline.core.queue_settings import (
    QUOTAS_MAX,
    QueueSettings,
    Quota,
    check_settings,
    quotas_on,
    with_quota,
)
from dueline.core.store import JobPage
from dueline.jobs.queue import EnqueueRequest
from dueline.limits import quota
from tests.harness.cases import jobs_quotas as cases
from tests.harness.cases.jobs_quotas import (
    OFTEN,
    later,
    two_who_look_at_once,
    what_came_meanwhile_is_counted,
    what_was_taken_ahead_lapses,
)
from tests.harness.quotas import DEPTH, enqueue, waiting
from tests.harness.world import World

CALLS_MAX = 40


# --- how many wait ------------------------------------------------------------------------------


def test_no_more_jobs_wait_than_the_depth_allows_and_there_is_room_once_some_run(
    world: World,
) -> None:
    cases.no_more_jobs_wait_than_the_depth_allows_and_there_is_room_once_some_run(world)


def test_a_depth_tells_when_there_is_probably_room(world: World) -> None:
    # F9
    cases.a_depth_tells_when_there_is_probably_room(world)


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
    # F9, rules D1 and D2
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
    # rule D2
    what_came_meanwhile_is_counted(world)


def test_what_another_process_has_taken_ahead_is_not_given_twice(world: World) -> None:
    """Rule D2: a count leaves out what is taken ahead and not used yet, whatever came since."""
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
    """Rule D3: it is used until then, and no longer."""
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
    # F9, rules D1 and D3
    no_span_has_more(world)


def no_span_has_more(world: World) -> None:
    """Put jobs in from several processes, one by one, now many and now few."""
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
    # rule D3
    what_was_taken_ahead_lapses(world)


def test_two_who_looked_at_once_take_no_more_than_there_is(world: World) -> None:
    # rule D1
    two_who_look_at_once(world)


def test_a_rate_tells_when_there_is_room(world: World) -> None:
    cases.a_rate_tells_when_there_is_room(world)


# --- whose jobs ---------------------------------------------------------------------------------


def test_a_tenant_has_its_own_quota_or_that_of_each_and_all_share_the_queues(
    world: World,
) -> None:
    cases.a_tenant_has_its_own_quota_or_that_of_each_and_all_share_the_queues(world)


def test_quotas_of_a_tenant_are_found_among_all() -> None:
    each, own, whole = Quota("each", depth=1), Quota("tenant", "a", depth=2), Quota(depth=3)
    assert quotas_on([each, own, whole], "a") == [own, whole]
    assert quotas_on([each, own, whole], "b") == [Quota("tenant", "b", depth=1), whole]
    assert quotas_on([each, own, whole], "") == [whole]
    assert with_quota([each, own], own._replace(depth=5)) == (each, own._replace(depth=5))
    assert with_quota([each, own], own._replace(depth=0)) == (each,)


def test_what_is_refused_to_one_is_not_taken_of_what_is_for_all(world: World) -> None:
    # rule D1
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
