"""Changes to all jobs that match, stopped and gone on with."""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial

import pytest

from dueline.admin import bulk_runs
from dueline.admin.bulk_runs import PARTITION, BulkRun, Change
from dueline.admin.search import JobFilter
from dueline.core.attempt import Outcome
from dueline.core.clock import DAY_US, SECOND_US
from dueline.core.errors import Conflict, StoreUnavailable
from dueline.core.job import Job, JobId, State
from dueline.core.store import Lease, Want
from dueline.jobs.bulk import BulkResult, reschedule_all, retry_all
from dueline.jobs.queue import Queues
from tests.harness.failing_store import FailingStore, Fault
from tests.harness.queues import queues_on
from tests.harness.world import LEASE_US, World, dead_jobs

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


def records(world: World) -> int:
    return len(world.store.read(PARTITION, after=None, limit=9))


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make pages and runs of ids as small as the tests' queues."""
    monkeypatch.setattr(bulk_runs, "PAGE", 3)
    monkeypatch.setattr(bulk_runs, "IDS_MAX", 5)


def later(queues: Queues, rows: Sequence[Job]) -> Iterator[BulkResult]:
    """Let jobs be due in an hour."""
    return reschedule_all(queues, rows, queues.engine.time.latest_us() + 3600 * SECOND_US)


def test_all_that_match_are_come_to_and_nothing_is_left_of_it(world: World) -> None:
    # O6
    ids = dead_jobs(world)
    other, living = world.put(queue="other"), world.put()
    world.die(other)
    said = Told(partial(retry_all, world.queues))
    run = BulkRun(world.queues.engine, DEAD, "retry")
    assert (run.count(), run.is_begun) == (JOBS, False)
    assert total(run.run(said)) == BulkResult(done=JOBS)
    assert said.came_to == Counter(ids)
    assert world.queues.find(other).status == "dead"
    assert world.queues.find(living).status == "ready"
    assert records(world) == 0


@pytest.mark.parametrize("state", ["dead", None])
def test_who_is_killed_after_any_job_comes_to_each_once(world: World, state: str | None) -> None:
    for killed_after in range(8):
        queue = f"q{killed_after}"
        ids = dead_jobs(world, 8, queue) if state else [world.put(queue=queue) for _ in range(8)]
        said = Told(partial(retry_all if state else later, world.queues), killed_after)
        with pytest.raises(Killed):
            total(BulkRun(world.queues.engine, JobFilter(state, queue), "it").run(said))
        world.clock.advance(1)
        for row in list(world.queues.engine.jobs_of(queue)):
            if state:  # what was retried dies again, and would match once more
                world.die(row.id)
        said.killed_after = 10**9
        repeat = BulkRun(world.queues.engine, JobFilter(state, queue), "it")
        left = len(ids) - killed_after
        assert (repeat.count(), repeat.is_begun) == (left, True)
        assert total(repeat.run(said)).done == left
        assert said.came_to == Counter(ids)


@pytest.mark.long
@pytest.mark.parametrize("fault", Fault)
def test_wherever_a_call_fails_a_repeat_comes_to_each_once(world: World, fault: Fault) -> None:
    for number in range(1, 500):
        queue = f"q{number}"
        ids = dead_jobs(world, 5, queue)
        hops = {job_id: world.row(job_id).hop for job_id in ids}
        failing = FailingStore(world.store, {number: fault})
        queues = queues_on(failing, world.clock)
        is_whole = False
        with suppress(StoreUnavailable):
            total(
                BulkRun(queues.engine, JobFilter("dead", queue), "it").run(
                    partial(retry_all, queues)
                )
            )
            is_whole = True
        retried = [job_id for job_id in ids if world.queues.find(job_id).status == "ready"]
        if is_whole:
            assert retried == ids
            if failing.calls < number:
                return
            continue
        world.clock.advance(1)
        for job_id in retried:
            world.die(job_id)
        total(
            BulkRun(world.queues.engine, JobFilter("dead", queue), "it").run(
                partial(retry_all, world.queues)
            )
        )
        for job_id in ids:
            row = world.row(job_id)
            again = job_id in retried
            assert (row.hop - hops[job_id], row.state == State.DEAD) == (1 + again, again)
    pytest.fail("every call failed")


def test_what_comes_later_is_not_touched_but_by_a_repeat(world: World) -> None:
    ids = [world.put(after_s=60) for _ in range(4)]
    said = Told(partial(later, world.queues), 2)
    with pytest.raises(Killed):
        total(BulkRun(world.queues.engine, JobFilter(queue="q"), "later").run(said))
    world.clock.advance(1)
    new = world.put(after_s=60)
    said.killed_after = 10**9
    total(BulkRun(world.queues.engine, JobFilter(queue="q"), "later").run(said))
    assert said.came_to == Counter(ids)
    total(BulkRun(world.queues.engine, JobFilter(queue="q"), "later").run(said))
    assert said.came_to[new] == 1


def test_another_command_begins_anew_and_so_does_one_a_day_later(world: World) -> None:
    dead_jobs(world, 5)
    with pytest.raises(Killed):
        total(
            BulkRun(world.queues.engine, DEAD, "retry").run(
                Told(partial(retry_all, world.queues), 1)
            )
        )
    assert not BulkRun(world.queues.engine, DEAD, "other").is_begun
    assert not BulkRun(world.queues.engine, JobFilter(state="dead"), "retry").is_begun
    assert BulkRun(world.queues.engine, DEAD, "retry").is_begun
    world.clock.advance(us=DAY_US + SECOND_US)
    assert not BulkRun(world.queues.engine, DEAD, "retry").is_begun


def test_a_limit_leaves_the_rest_for_a_repeat(world: World) -> None:
    ids = [world.put() for _ in range(8)]
    said = Told(partial(later, world.queues))
    for left in (8, 4):
        run = BulkRun(world.queues.engine, JobFilter(queue="q"), "later")
        assert run.count() == left
        assert run.count(2) == min(left, 3)
        total(run.run(said, limit=4))
    assert said.came_to == Counter(ids)
    assert records(world) == 0


def test_of_two_who_do_the_same_one_stops_and_each_job_is_come_to_once(world: World) -> None:
    ids = dead_jobs(world)
    said = Told(partial(retry_all, world.queues))
    first = BulkRun(world.queues.engine, DEAD, "retry").run(said)
    next(first)
    second = BulkRun(world.queues.engine, DEAD, "retry").run(said)
    for _ in range(4):
        next(second)
    with pytest.raises(Conflict, match="Another process is running"):
        total(first)
    total(second)
    assert said.came_to == Counter(ids)


def test_a_job_that_died_before_it_was_come_to_is_left_alone(world: World) -> None:
    ids = [world.put() for _ in range(5)]
    pages = BulkRun(world.queues.engine, JobFilter(queue="q"), "it").run(
        partial(later, world.queues)
    )
    assert next(pages).done == 3
    (job,) = world.store.claim(
        [Want(world.row(ids[3]).lane, 1)],
        limit=1,
        lease=Lease(world.now_us, LEASE_US, "w1", world.queues.engine.ids.token()),
    ).jobs
    world.end(job, Outcome("dead", world.now_us, error="ValueError: no"))
    assert total(pages) == BulkResult(done=1)
    assert world.queues.find(ids[3]).status == "dead"
