"""Jobs that start no more often than a rate says."""

from collections import Counter
from pathlib import Path

from dueline import Dueline, Throttled
from dueline.core.clock import SECOND_US
from dueline.core.job import Job
from dueline.jobs.queue import EnqueueRequest
from dueline.limits import rate, semaphore
from dueline.limits.permits import HeldPermits
from dueline.limits.rate import Rate
from dueline.limits.rate_meters import RateMeters
from dueline.worker.claimer import Claimer
from tests.harness.world import World, world_on


def claimer_of(world: World, worker: str) -> tuple[Claimer, HeldPermits]:
    permits = HeldPermits(world.queues.engine, worker)
    return Claimer(world.queues.engine, ["q"], worker, permits=permits), permits


def workers_share_a_rate(kind: str, tmp_path: Path) -> None:
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
        sum(us <= one < us + SECOND_US for one in claimed) <= 5 for us in claimed
    )  # fmt: skip
    assert len(claimed) >= 18  # in four seconds
    world.store.close()


def a_rate_counts_starts_and_not_claims(kind: str, tmp_path: Path) -> None:
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


def two_who_looked_at_once_take_no_more_than_there_is() -> None:
    # Rule N5
    world, one = world_on("memory", Path()), Rate(5, SECOND_US)
    first, second = RateMeters(world.queues.engine), RateMeters(world.queues.engine)
    seen = [who.read("mail", one) for who in (first, second)]
    assert first.take("mail", one, seen[0], 4)[0] == 4
    assert second.take("mail", one, seen[1], 4)[0] == 1


def what_a_claim_did_not_need_is_given_back() -> None:
    world = world_on("memory", Path())
    rate.define(world.store, "mail", Rate(5, SECOND_US), ids=world.queues.engine.ids)
    semaphore.define(world.store, "few", 9, ids=world.queues.engine.ids)
    world.queues.enqueue(EnqueueRequest("q", "t", 0, [b"[1]"] * 2, limits=[("mail", "few")] * 2))
    claimer, permits = claimer_of(world, "w1")
    claimer.refresh()
    permits.begin(list, 9)
    taken = claimer.claim(9, {})
    assert len(taken) == 2
    permits.settle(lambda: [one.job for one in taken])
    meter, _ = rate.read(world.store, "mail")
    assert rate.left(meter, Rate(5, SECOND_US), world.now_us) == 3
    assert semaphore.read(world.store, "few")[0].in_use(world.now_us) == 2


def a_handler_closes_its_limits_for_a_while(url: str, kind: str) -> None:
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
