"""Jobs that start no more often than a rate says."""

from collections import Counter
from pathlib import Path

import pytest

from dueline import Dueline, Throttled
from dueline.core.clock import SECOND_US
from dueline.core.errors import BadInput
from dueline.core.job import Job
from dueline.core.store import Drop
from dueline.jobs.queue import EnqueueRequest
from dueline.limits import rate, semaphore
from dueline.limits.permits import HeldPermits
from dueline.limits.rate import Meter, Rate
from dueline.limits.rate_meters import RateMeters
from dueline.limits.suspension import suspend
from dueline.worker.claimer import Claimer
from tests.harness.calls import call, put
from tests.harness.worker_bench import Bench
from tests.harness.world import EVERY_KIND, World, world_on


def claimer_of(world: World, worker: str) -> tuple[Claimer, HeldPermits]:
    permits = HeldPermits(world.queues.engine, worker)
    return Claimer(world.queues.engine, ["q"], worker, permits=permits), permits


@pytest.mark.parametrize("kind", EVERY_KIND)
def test_workers_share_a_rate(kind: str, tmp_path: Path) -> None:
    # F5: global across workers
    world = world_on(kind, tmp_path)
    rate.define(world.store, "mail", Rate(5, SECOND_US), ids=world.queues.engine.ids)
    world.queues.enqueue(EnqueueRequest("q", "t", 0, [b"[1]"] * 30, limits=[("mail",)] * 30))
    workers = [claimer_of(world, "w1"), claimer_of(world, "w2")]
    claimed: list[int] = []
    for _ in range(40):
        for claimer, permits in workers:
            claimer.refresh()
            permits.begin(list, 3)
            taken = claimer.claim(3, {})
            permits.settle(list)
            claimed += [world.now_us] * len(taken)
        world.clock.advance(us=SECOND_US // 10)
    assert all(
        sum(us <= start_us < us + SECOND_US for start_us in claimed) <= 5 for us in claimed
    )  # fmt: skip
    assert len(claimed) >= 18  # in four seconds
    world.store.close()


@pytest.mark.parametrize("kind", EVERY_KIND)
def test_a_rate_counts_starts_and_not_claims(kind: str, tmp_path: Path) -> None:
    # Rule N5: a worker that has just begun takes a while to start its first jobs
    world = world_on(kind, tmp_path)
    rate.define(world.store, "mail", Rate(5, SECOND_US), ids=world.queues.engine.ids)
    world.queues.enqueue(EnqueueRequest("q", "t", 0, [b"[1]"] * 30, limits=[("mail",)] * 30))
    cold, other = claimer_of(world, "w1"), claimer_of(world, "w2")

    def claim(claimer: Claimer, permits: HeldPermits) -> list[Job]:
        claimer.refresh()
        permits.begin(list, 9)
        return [job for job, _ in claimer.claim(9, {})]

    jobs = claim(*cold)
    assert len(jobs) == 5
    held, permits = jobs, cold[1]
    permits.settle(lambda: held)
    world.clock.advance(us=64_000)
    permits.started([job.claim() for job in jobs], world.now_us)
    permits.settle(lambda: held)
    world.clock.advance(us=SECOND_US - 64_000)
    assert claim(*other) == []  # the claims are a second ago, and the starts are not
    world.clock.advance(us=64_000 + SECOND_US // rate.GRAINS)
    assert len(claim(*other)) == 5
    world.store.close()


@pytest.mark.parametrize("is_over", [True, False])
def test_a_start_counts_as_of_then_even_if_it_ends_before_the_next_pass(*, is_over: bool) -> None:
    # Rule N5
    world, limit = world_on("memory", Path()), Rate(5, SECOND_US)
    rate.define(world.store, "mail", limit, ids=world.queues.engine.ids)
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
    assert rate.left(meter, limit, started_us[0] + SECOND_US - 1) == 4
    assert rate.left(meter, limit, started_us[0] + SECOND_US * 102 // 100) == 5


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
    # Rule N5
    world, limit = world_on("memory", Path()), Rate(5, SECOND_US)
    first, second = RateMeters(world.queues.engine), RateMeters(world.queues.engine)
    seen = [who.read("mail", limit) for who in (first, second)]
    assert first.take("mail", limit, seen[0], 4)[0] == 4
    assert second.take("mail", limit, seen[1], 4)[0] == 1


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
    world = world_on("memory", Path())
    rate.define(world.store, "mail", Rate(5, SECOND_US), ids=world.queues.engine.ids)
    semaphore.define(world.store, "few", 9, ids=world.queues.engine.ids)
    world.queues.enqueue(EnqueueRequest("q", "t", 0, [b"[1]"] * 2, limits=[("mail", "few")] * 2))
    claimer, permits = claimer_of(world, "w1")
    claimer.refresh()
    permits.begin(list, 9)
    taken = claimer.claim(9, {})
    assert len(taken) == 2
    permits.settle(lambda: [claimed.job for claimed in taken])
    meter, _ = rate.read(world.store, "mail")
    assert rate.left(meter, Rate(5, SECOND_US), world.now_us) == 3
    assert semaphore.read(world.store, "few")[0].in_use(world.now_us) == 2


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
    # F6
    app, ran = Dueline(url), list[str]()
    if kind == "rate":
        app.rate("api", 1000, per=1)
    else:
        app.semaphore("api", capacity=1)

    @app.task(name="call", limits=["api:{key}"])
    def call(key: str) -> None:
        ran.append(key)
        if key == "busy":
            raise Throttled(minutes=5)

    jobs = call.enqueue_many([("busy",)] * 3 + [("free",)] * 3)
    app.run_worker(burst=True, concurrency=1)  # which waits no five minutes
    assert sorted(ran) == ["busy", "free", "free", "free"]
    assert Counter(job.status for job in jobs) == {"done": 3, "ready": 2, "scheduled": 1}
    app.close()


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
    state, _ = semaphore.read(world.store, "api")
    assert (state.in_use(world.now_us), state.closed_us > world.now_us) == (0, True)
