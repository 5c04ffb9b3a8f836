"""Many jobs changed at once (O6)."""

from collections.abc import Callable, Iterator

import pytest

from dueline.core.attempt import Outcome
from dueline.core.call_options import CallOptions
from dueline.core.clock import SECOND_US
from dueline.core.errors import BadInput, StoreUnavailable
from dueline.core.job import JobId
from dueline.jobs import bulk
from dueline.jobs.bulk import (
    BulkResult,
    cancel_all,
    dead_before,
    drain,
    drop_dead,
    reschedule_all,
    retry_all,
    waiting_in,
)
from dueline.jobs.counts import Counts
from tests.harness.failing_store import FailingStore, Fault
from tests.harness.queues import queues_on
from tests.harness.unique_jobs import keyed
from tests.harness.world import World


def status(world: World, job_id: JobId) -> str:
    return world.queues.find(job_id).status


def total(pages: Iterator[BulkResult]) -> BulkResult:
    changed = BulkResult()
    for page in pages:
        changed = changed.plus(page)
    return changed


def test_all_that_waits_is_cancelled(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk, "PAGE", 3)
    ids = [world.put(after_s=number % 3 * 60, priority=number % 2) for number in range(10)]
    other = world.put(queue="other")
    pages = list(cancel_all(world.queues, waiting_in(world.queues.engine, "q")))
    assert [page.done for page in pages] == [3, 3, 3, 1]
    assert {status(world, job_id) for job_id in ids} == {"cancelled"}
    assert status(world, other) == "ready"
    assert list(waiting_in(world.queues.engine, "q")) == []


def test_what_runs_does_not_wait(world: World) -> None:
    running = world.put()
    world.claim(running, start=True)
    waiting = world.put(after_s=60)
    assert [row.id for row in waiting_in(world.queues.engine, "q")] == [waiting]


def test_what_runs_is_asked_to_stop(world: World) -> None:
    running, waiting = world.put(), world.put(after_s=60)
    world.claim(running, start=True)
    rows = [world.row(running), world.row(waiting)]
    assert total(cancel_all(world.queues, rows)) == BulkResult(done=1, asked=1)
    assert status(world, running) == "running"
    assert status(world, waiting) == "cancelled"


def test_what_has_changed_since_it_was_read_is_left(world: World) -> None:
    changed, ended, same = (world.put() for _ in range(3))
    rows = [world.row(job_id) for job_id in (changed, ended, same)]
    world.queues.retry(changed)
    world.queues.cancel(ended)
    assert total(cancel_all(world.queues, rows)) == BulkResult(done=1, left=2)
    assert status(world, changed) == "ready"


def test_a_dead_job_is_not_cancelled(world: World) -> None:
    job_id = world.put()
    world.die(job_id)
    assert total(cancel_all(world.queues, [world.row(job_id)])) == BulkResult(left=1)
    assert status(world, job_id) == "dead"


def test_what_ended_while_it_was_to_be_asked_is_left(world: World) -> None:
    job_id = world.put()
    job = world.claim(job_id, start=True)
    running = world.row(job_id)
    world.end(job, Outcome("done", world.now_us))
    assert total(cancel_all(world.queues, [running])) == BulkResult(left=1)


def test_retries_run_now_and_leave_what_runs(world: World) -> None:
    dead, running, later = world.put(), world.put(queue="other"), world.put(after_s=60)
    world.die(dead)
    world.claim(running, start=True)
    rows = [
        *dead_before(world.queues.engine, "q", world.now_us + 1),
        world.row(running),
        world.row(later),
    ]
    assert total(retry_all(world.queues, rows)) == BulkResult(done=2, left=1)
    assert [status(world, job_id) for job_id in (dead, running, later)] == [
        "ready",
        "running",
        "ready",
    ]


def test_what_waits_is_rescheduled(world: World) -> None:
    running, ready, ended = world.put(queue="other"), world.put(), world.put()
    world.claim(running, start=True)
    rows = [world.row(job_id) for job_id in (running, ready, ended)]
    world.queues.cancel(ended)
    at_us = world.now_us + 60 * SECOND_US
    assert total(reschedule_all(world.queues, rows, at_us)) == BulkResult(done=1, left=2)
    assert (world.row(ready).at_us, world.row(ready).due_us) == (at_us, at_us)
    assert status(world, running) == "running"


def test_what_would_expire_before_its_new_time_is_left(world: World) -> None:
    # C15
    due_us = world.now_us + 9 * SECOND_US
    calls = [keyed(n, key=str(n), due_us=due_us) for n in range(3)]
    opts = CallOptions(expires_us=due_us + 1).to_bytes()
    calls[1] = calls[1]._replace(opts=opts)
    rows = list(world.queues.enqueue_all(calls))
    at_us = due_us + 60 * SECOND_US
    assert total(reschedule_all(world.queues, rows, at_us)) == BulkResult(done=2, left=1)
    assert [world.row(row.id).at_us for row in rows] == [at_us, due_us, at_us]
    with pytest.raises(BadInput, match="ten years"):
        total(reschedule_all(world.queues, rows, at_us * 2))


def test_only_those_that_died_before_an_instant_are_forgotten(world: World) -> None:
    old, young, other = world.put(), world.put(after_s=60), world.put(queue="other")
    world.die(old)
    world.die(other)
    world.clock.advance(61)
    world.die(young)
    before_us = world.now_us - 30 * SECOND_US
    assert {row.id for row in dead_before(world.queues.engine, None, before_us)} == {old, other}
    rows = dead_before(world.queues.engine, "q", before_us)
    assert total(drop_dead(world.queues.engine, rows)) == BulkResult(done=1)
    assert world.store.find([old]) == [None]
    assert [status(world, job_id) for job_id in (young, other)] == ["dead", "dead"]


def test_a_dead_job_that_was_retried_meanwhile_is_not_forgotten(world: World) -> None:
    job_id = world.put()
    world.die(job_id)
    rows = list(dead_before(world.queues.engine, "q", world.now_us + 1))
    world.queues.retry(job_id)
    assert total(drop_dead(world.queues.engine, iter(rows))) == BulkResult(left=1)
    assert status(world, job_id) == "ready"


@pytest.mark.parametrize("fault", Fault)
def test_what_a_failure_left_is_done_by_a_repeat(
    world: World, monkeypatch: pytest.MonkeyPatch, fault: Fault
) -> None:
    monkeypatch.setattr(bulk, "PAGE", 2)
    for number in range(1, 50):
        name = f"q{number}"
        ids = [world.put(queue=name) for _ in range(4)]
        failing = FailingStore(world.store, {number: fault})
        queues = queues_on(failing, world.clock)
        try:
            total(cancel_all(queues, waiting_in(queues.engine, name)))
        except StoreUnavailable:
            total(cancel_all(world.queues, waiting_in(world.queues.engine, name)))
        assert {status(world, job_id) for job_id in ids} == {"cancelled"}
        if failing.calls < number:
            return
    pytest.fail("every call failed")


def drained(
    world: World, *, timeout_s: float | None, meanwhile: Callable[[], object]
) -> tuple[Counts, list[int]]:
    """Drain while something happens at each count; answer what is left, and what was told."""
    told: list[int] = []

    def tell(counts: Counts) -> None:
        told.append(counts.living())
        meanwhile()

    timeout_us = None if timeout_s is None else round(timeout_s * SECOND_US)
    left = drain(world.queues.engine, "q", world.clock, timeout_us=timeout_us, tell=tell)
    return left, told


def test_a_drain_waits_until_nothing_is_left(world: World) -> None:
    ids = [world.put(), world.put(), world.put(after_s=60)]
    left, told = drained(
        world, timeout_s=None, meanwhile=lambda: ids and world.queues.cancel(ids.pop())
    )
    assert told[:2] == [3, 2]
    assert told[-1] == left.living() == 0


def test_a_drain_tells_what_is_left_when_its_time_runs_out(world: World) -> None:
    world.put()
    began_us = world.now_us
    left, _ = drained(world, timeout_s=2.2, meanwhile=lambda: None)
    assert left.living() == 1
    assert world.now_us - began_us == round(2.2 * SECOND_US)
