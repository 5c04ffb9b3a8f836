"""Workers that claim jobs with costs, on a clock that is moved by hand."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from dueline.core.job import Job
from dueline.core.lane import COST_MARK
from dueline.core.limit_costs import costs_of
from dueline.core.store import Drop
from dueline.jobs.queue import EnqueueRequest
from dueline.limits.permits import HeldPermits
from dueline.worker.claimer import Claimer
from tests.harness.world import World


def costing(name: str, units: int) -> str:
    """Return a limit of a call that takes a number of units."""
    return f"{name}{COST_MARK}{units}"


def put(world: World, *limits: str, tenant: str = "", priority: int = 0) -> Job:
    """Enqueue one job with these limits."""
    request = EnqueueRequest(
        "q", "t", 0, [b"[1]"], priority=priority, tenant=tenant, limits=[limits]
    )
    return world.queues.enqueue(request)[0]


def units_in(jobs: Iterable[Job], name: str) -> int:
    """Return what jobs take of a limit together."""
    return sum(costs_of(job).get(name, 1) for job in jobs)


@dataclass
class CostWorker:
    """One worker's claims; `held` are its jobs."""

    world: World
    name: str = "w1"
    slots: int = 50
    held: list[Job] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Make its parts."""
        engine = self.world.queues.engine
        self.permits = HeldPermits(engine, self.name)
        self.claimer = Claimer(engine, ["q"], self.name, permits=self.permits)

    def claim(self) -> list[Job]:
        """Poll and claim, as the loop of a worker does; return the new jobs."""
        self.claimer.refresh()
        room = self.slots - len(self.held)
        self.claimer.unblock(self.permits.begin(lambda: self.held, room))
        taken = [job for job, _ in self.claimer.claim(room, {})] if room else []
        self.held += taken
        self.permits.started([job.claim() for job in taken], self.world.now_us)
        self.permits.settle(lambda: self.held)
        return taken

    def end(self, jobs: Sequence[Job]) -> None:
        """End some of its jobs."""
        self.world.store.settle([Drop(job) for job in jobs])
        self.held = [job for job in self.held if job not in jobs]
        self.permits.settle(lambda: self.held)
