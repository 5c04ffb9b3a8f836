"""Which shards several workers look at."""

from dueline.core.job import JobId
from dueline.core.queue_settings import QueueSettings
from dueline.jobs.queue import EnqueueRequest
from dueline.worker.claimer import Claimer
from dueline.worker.heartbeat import Load, PresenceReporter
from dueline.worker.shard_affinity import WHOLE_EVERY_US, ShardAffinity
from tests.harness.world import World

SHARDS = 8


JOBS = 200
"""So many that some come to each shard."""


LEASE_US = QueueSettings().lease_us


class Member:
    """A worker that claims, beats when it is told to, and prefers some shards."""

    def __init__(self, world: World, name: str) -> None:
        self.reporter = PresenceReporter(world.queues.engine, name, serving=("q",), tasks=())
        self.affinity = ShardAffinity(world.queues.engine, name)
        self._claimer = Claimer(world.queues.engine, ["q"], name, affinity=self.affinity)

    def beat(self, *, held: int = 0) -> None:
        self.reporter.report(Load(slots=4, held=held))

    def claim(self, limit: int = 10 * JOBS) -> set[JobId]:
        """Look once, and claim what it finds."""
        self._claimer.refresh()
        found: set[JobId] = set()
        while len(found) < limit and (taken := self._claimer.claim(limit - len(found), {})):
            found |= {one.job.id for one in taken}
        return found


def shared(world: World, *names: str) -> list[Member]:
    """Make members of a queue of several shards, who beat and have looked at all of it once."""
    world.queues.engine.catalog.configure("q", shards=SHARDS)
    members = [Member(world, name) for name in names]
    for one in members:
        one.beat()
    for one in members:
        assert one.claim() == set()
    return members


def put(world: World) -> dict[JobId, int]:
    """Enqueue jobs, some to each shard; tell the shard of each."""
    jobs = world.queues.enqueue(EnqueueRequest("q", "t", 0, [b"[1]"] * JOBS))
    assert {job.lane.shard for job in jobs} == set(range(SHARDS))
    return {job.id: job.lane.shard for job in jobs}


def workers_claim_from_shards_of_their_own(world: World) -> None:
    # H10
    one, two = shared(world, "w1", "w2")
    jobs = put(world)
    first = one.claim()
    second = two.claim()
    assert first | second == set(jobs)
    assert {job for job in jobs if ("q", jobs[job]) in one.affinity.others} == second
    assert len({jobs[job] for job in second}) == SHARDS // 2
    world.store.close()


def the_shards_of_a_dead_worker_wait_two_seconds_and_then_for_nobody(world: World) -> None:
    one, dead = shared(world, "w1", "dead")
    jobs = put(world)
    found = one.claim()
    assert found < set(jobs)
    world.clock.advance(us=WHOLE_EVERY_US)
    assert found | one.claim() == set(jobs)
    world.clock.advance(us=LEASE_US // 2 + 1)
    one.beat()
    one.claim()  # it looks at all of them, as every two seconds
    more = put(world)
    assert one.claim() == set(more)  # whose beat is stale is preferred by nobody
    assert dead.affinity.others
    world.store.close()
