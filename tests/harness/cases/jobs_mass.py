"""Many jobs changed at once."""

from collections.abc import Iterator

from dueline.core.job import JobId
from dueline.jobs.bulk import (
    BulkResult,
    cancel_all,
)
from tests.harness.world import World


def status(world: World, job_id: JobId) -> str:
    return world.queues.find(job_id).status


def total(pages: Iterator[BulkResult]) -> BulkResult:
    changed = BulkResult()
    for page in pages:
        changed = changed.plus(page)
    return changed


def what_runs_is_asked_to_stop(world: World) -> None:
    running, waiting = world.put(), world.put(after_s=60)
    world.claim(running, start=True)
    rows = [world.row(running), world.row(waiting)]
    assert total(cancel_all(world.queues, rows)) == BulkResult(done=1, asked=1)
    assert status(world, running) == "running"
    assert status(world, waiting) == "cancelled"
