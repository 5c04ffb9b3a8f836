"""Changes to all jobs that match, stopped and gone on with."""

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial

from dueline.admin.bulk_runs import PARTITION, BulkRun, Change
from dueline.admin.search import JobFilter
from dueline.core.job import Job, JobId
from dueline.jobs.bulk import BulkResult, retry_all
from tests.harness.world import World

JOBS = 14


DEAD = JobFilter(state="dead", queue="q")


class Killed(BaseException):
    """A process is killed."""


class Told:
    """Changes jobs as asked, and keeps which were changed; the process may be killed after any."""

    def __init__(self, change: Change, killed_after: int = 10**9) -> None:
        self.change = change
        self.killed_after = killed_after
        self.came_to: Counter[JobId] = Counter()

    def __call__(self, rows: Sequence[Job]) -> Iterator[BulkResult]:
        for row in rows:
            if self.came_to.total() == self.killed_after:
                raise Killed
            changed = next(iter(self.change([row])))
            self.came_to[row.id] += changed.done + changed.asked
            yield changed


def total(pages: Iterator[BulkResult]) -> BulkResult:
    changed = BulkResult()
    for page in pages:
        changed = changed.plus(page)
    return changed


def dead_jobs(world: World, count: int = JOBS, queue: str = "q") -> list[JobId]:
    """Have so many jobs of several lanes die."""
    ids = [
        world.put(queue=queue, priority=number % 2, tenant="ab"[number % 3 == 0])
        for number in range(count)
    ]
    for job_id in ids:
        world.die(job_id)
    return ids


def records(world: World) -> int:
    return len(world.store.read(PARTITION, after=None, limit=9))


def all_that_match_are_come_to_and_nothing_is_left_of_it(world: World) -> None:
    # O6
    ids = dead_jobs(world)
    other, living = world.put(queue="other"), world.put()
    world.die(other)
    said = Told(partial(retry_all, world.queues))
    one = BulkRun(world.queues.engine, DEAD, "retry")
    assert (one.count(), one.is_begun) == (JOBS, False)
    assert total(one.run(said)) == BulkResult(done=JOBS)
    assert said.came_to == Counter(ids)
    assert world.queues.find(other).status == "dead"
    assert world.queues.find(living).status == "ready"
    assert records(world) == 0
