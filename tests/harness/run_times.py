"""Run times of tasks, as workers write them."""

from dueline.coordination.run_times import PARTITION, QueueTimes, TaskTimes, WorkerTimes, step_of
from dueline.core.clock import SECOND_US
from dueline.core.codec import encode
from dueline.core.store import Put
from tests.harness.world import World


def measured(world: World, run_s: float = 1, number: int = 100) -> None:
    """Write what a worker measured: runs of one duration."""
    times = TaskTimes(number, 0, {step_of(round(run_s * SECOND_US)): number})
    record = WorkerTimes(world.now_us, world.now_us, {"q": QueueTimes({"t": times})})
    world.store.commit(PARTITION, (Put("w1", b"v", encode(record)),))
