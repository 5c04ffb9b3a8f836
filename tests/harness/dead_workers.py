"""Workers that died, and the release of what they held."""

from dueline.core.job import Job
from dueline.core.store import Lease, Want
from dueline.monitor.dead_workers import release_dead_worker
from dueline.worker.heartbeat import Load, PresenceReporter
from tests.harness.world import LEASE_US, World

SHORT_S = 30
LONG_US = 120 * LEASE_US


def beat(world: World, worker: str = "w1", queues: tuple[str, ...] = ("q",)) -> None:
    """Have a worker beat, as workers do; it is on the roster from then on."""
    PresenceReporter(world.queues.engine, worker, serving=queues).report(Load(slots=4, held=0))


def free_all(world: World, *gone: str) -> int:
    """Free what all the dead hold; gone: those whose processes have ended for certain."""
    after: str | None = None
    freed = 0
    while True:
        report = release_dead_worker(
            world.queues.engine, after, has_ended=lambda member: member.worker in gone or None
        )
        freed += report.acts
        after = report.after
        if after is None:
            return freed


def claim(world: World, worker: str = "w1", *, lease_us: int = LEASE_US) -> Job:
    """Claim the first job that is due."""
    (lane,) = world.queues.engine.lanes_of("q")
    (job,) = world.store.claim(
        [Want(lane, 1)],
        limit=1,
        lease=Lease(world.now_us, lease_us, worker, world.queues.engine.ids.token()),
    ).jobs
    return job
