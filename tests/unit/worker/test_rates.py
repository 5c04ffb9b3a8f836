"""Jobs that start no more often than a rate says."""

from pathlib import Path

import pytest

from dueline import Dueline
from dueline.core.clock import SECOND_US
from dueline.core.errors import BadInput
from dueline.core.store import Drop
from dueline.jobs.queue import EnqueueRequest
from dueline.limits import rate, semaphore
from dueline.limits.permits import suspend
from dueline.limits.rate import Meter, Rate
from tests.harness.calls import call, put
from tests.harness.cases import worker_rates as cases
from tests.harness.cases.worker_rates import claimer_of
from tests.harness.worker_bench import Bench
from tests.harness.world import EVERY_KIND, world_on


@pytest.mark.parametrize("kind", EVERY_KIND)
def test_workers_share_a_rate(kind: str, tmp_path: Path) -> None:
    cases.workers_share_a_rate(kind, tmp_path)


@pytest.mark.parametrize("kind", EVERY_KIND)
def test_a_rate_counts_starts_and_not_claims(kind: str, tmp_path: Path) -> None:
    cases.a_rate_counts_starts_and_not_claims(kind, tmp_path)


@pytest.mark.parametrize("is_over", [True, False])
def test_a_start_counts_as_of_then_even_if_it_ends_before_the_next_pass(*, is_over: bool) -> None:
    # Rule N5
    world, one = world_on("memory", Path()), Rate(5, SECOND_US)
    rate.define(world.store, "mail", one, ids=world.queues.engine.ids)
    put(world.queues, call(1)._replace(limits=[("mail",)]))
    bench = Bench(world.queues, world.clock)
    started_us: list[int] = []

    def start() -> None:
        if bench.runner.ready:
            world.clock.advance(us=300_000)
            started_us.append(world.now_us)
            bench.runner.begin()
            if is_over:
                bench.runner.end()
        else:
            bench.runner.end()

    bench.wakeup.meanwhile = start
    assert bench.run() == [1]
    meter, _ = rate.read(world.store, "mail")
    assert rate.left(meter, one, started_us[0] + SECOND_US - 1) == 4
    assert rate.left(meter, one, started_us[0] + SECOND_US * 102 // 100) == 5


def test_what_is_given_back_before_it_starts_counts_as_used() -> None:
    # Rule N5
    world = world_on("memory", Path())
    rate.define(world.store, "mail", Rate(5, SECOND_US), ids=world.queues.engine.ids)
    world.queues.enqueue(EnqueueRequest("q", "t", 0, [b"[1]"] * 5, limits=[("mail",)] * 5))
    claimer, permits = claimer_of(world, "w1")
    claimer.refresh()
    permits.begin(list, 9)
    jobs = [job for job, _ in claimer.claim(9, {})]
    by_us = {*permits.start_by_us.values()}
    assert by_us == {world.now_us + SECOND_US // 2}
    permits.settle(lambda: jobs[2:])
    assert len(permits.start_by_us) == 3
    meter, _ = rate.read(world.store, "mail")
    assert rate.left(meter, Rate(5, SECOND_US), world.now_us) == 0
    permits.settle(list)
    assert not permits.start_by_us


def test_two_who_looked_at_once_take_no_more_than_there_is() -> None:
    cases.two_who_looked_at_once_take_no_more_than_there_is()


def test_a_worker_knows_when_it_may_claim_again() -> None:
    world = world_on("memory", Path())
    rate.define(world.store, "mail", Rate(1, 10 * SECOND_US), ids=world.queues.engine.ids)
    world.queues.enqueue(EnqueueRequest("q", "t", 0, [b"[1]"] * 2, limits=[("mail",)] * 2))
    claimer, permits = claimer_of(world, "w1")
    claimer.refresh()
    permits.begin(list, 3)
    assert len(claimer.claim(2, {})) == 1
    assert claimer.claim(2, {}) == []
    next_us = claimer.next_us()
    assert next_us is not None
    assert 9 * SECOND_US < next_us - world.now_us <= 11 * SECOND_US
    world.clock.advance(us=next_us - world.now_us)
    assert len(claimer.claim(2, {})) == 1


def test_what_a_claim_did_not_need_is_given_back() -> None:
    cases.what_a_claim_did_not_need_is_given_back()


@pytest.mark.parametrize("kind", EVERY_KIND)
def test_a_lane_in_which_nothing_is_due_keeps_no_rate_from_others(
    kind: str, tmp_path: Path
) -> None:
    # Jobs behind a lane that was empty and still listed waited for ever.
    world = world_on(kind, tmp_path)
    rate.define(world.store, "mail", Rate(1, SECOND_US), ids=world.queues.engine.ids)
    claimer, permits = claimer_of(world, "w1")

    def claim() -> list[int]:
        claimer.refresh()
        permits.begin(list, 3)
        taken = claimer.claim(3, {})
        for job, _ in taken:
            world.store.settle([Drop(job)])
        permits.settle(list)
        return [job.lane.priority for job, _ in taken]

    for priority in (5, 4, 0):
        world.put(priority=priority, limits=["mail"])
        world.clock.advance(us=2 * SECOND_US)
        assert claim() == [priority]
    world.store.close()


def test_a_rate_takes_no_token_for_what_a_semaphore_refuses() -> None:
    world = world_on("memory", Path())
    rate.define(world.store, "mail", Rate(5, SECOND_US), ids=world.queues.engine.ids)
    semaphore.define(world.store, "few", 0, ids=world.queues.engine.ids)
    _, permits = claimer_of(world, "w1")
    permits.begin(list, 9)
    assert permits.take(("few", "mail"), 3, priority=0, queue="q", lease_us=SECOND_US).jobs == 0
    assert rate.read(world.store, "mail")[0] == Meter()


@pytest.mark.memory
def test_an_app_sets_rates_and_its_worker_ends_all_jobs() -> None:
    app, ran = Dueline("memory://"), list[str]()
    app.rate("mail", 20, per=0.02)

    @app.task(name="send", limits=["mail:{to}"])
    def send(to: str) -> None:
        ran.append(to)

    send.enqueue_many([(to,) for to in "ab" * 40])
    app.run_worker(burst=True)
    assert sorted(ran) == ["a"] * 40 + ["b"] * 40
    app.rate("mail", 1, per=3600, burst=2)  # live
    app.run_worker(burst=True)
    with pytest.raises(BadInput):
        app.rate("mail", 0, per=1)
    with pytest.raises(BadInput):
        app.rate("mail", 1, per=-1)
    app.close()


@pytest.mark.parametrize("url", ["memory://", "memory://?transactional=off"])
@pytest.mark.parametrize("kind", ["rate", "semaphore"])
@pytest.mark.memory
def test_a_handler_closes_its_limits_for_a_while(url: str, kind: str) -> None:
    cases.a_handler_closes_its_limits_for_a_while(url, kind)


@pytest.mark.parametrize("kind", ["rate", "semaphore"])
def test_a_limit_that_was_closed_opens_by_itself(kind: str) -> None:
    # F6
    world = world_on("memory", Path())
    if kind == "rate":
        rate.define(world.store, "api", Rate(5, SECOND_US), ids=world.queues.engine.ids)
    world.queues.enqueue(EnqueueRequest("q", "t", 0, [b"[1]"] * 2, limits=[("api",)] * 2))
    suspend(world.queues.engine, ["api"], world.now_us + 60 * SECOND_US)
    suspend(world.queues.engine, ["api"], world.now_us + 30 * SECOND_US)  # it is closed for longer
    claimer, permits = claimer_of(world, "w1")
    claimer.refresh()
    permits.begin(list, 1)
    assert claimer.claim(1, {}) == []
    assert not claimer.has_due()
    next_us = claimer.next_us()
    assert next_us == world.now_us + 60 * SECOND_US
    world.clock.advance(us=61 * SECOND_US)
    assert len(claimer.claim(1, {})) == 1


def test_who_holds_a_permit_of_a_closed_limit_keeps_it() -> None:
    world = world_on("memory", Path())
    _, permits = claimer_of(world, "w1")
    permits.begin(list, 1)
    assert permits.take(("api",), 1, priority=0, queue="q", lease_us=SECOND_US).jobs == 1
    suspend(world.queues.engine, ["api"], world.now_us + 60 * SECOND_US)
    assert semaphore.read(world.store, "api")[0].in_use(world.now_us) == 1
    permits.settle(list)
    found, _ = semaphore.read(world.store, "api")
    assert (found.in_use(world.now_us), found.closed_us > world.now_us) == (0, True)
