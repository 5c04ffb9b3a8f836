"""A time that comes while the job before it lives waits, or ends that job."""

from contextlib import suppress

from dueline.core.attempt import Outcome
from dueline.core.clock import SECOND_US
from dueline.core.errors import Unknown
from dueline.core.job import Job
from dueline.core.store import Extend
from dueline.jobs import cancel_requests
from dueline.schedules.schedule import Overlap, Timing
from dueline.schedules.scheduler import advance, advance_all, put
from tests.harness.failing_store import FailingStore, Fault
from tests.harness.schedules import (
    EVERY_US,
    TEMPLATE,
    end,
    found,
    fresh,
    waiting,
)
from tests.harness.world import World

CALLS_MAX = 80


HOUR_US = 3600 * SECOND_US


FEW = 2


def one_by_one(overlap: Overlap) -> Timing:
    """Make a timing whose jobs come one after the other."""
    return Timing(every_us=EVERY_US, catch_up="all", overlap=overlap)


def all_are_accounted_for(world: World, began_us: int, *, ended: int) -> None:
    """Check that each time so far came to a job, waits, or was left out."""
    one = found(world)
    times = (one.through_us - began_us) // EVERY_US
    assert one.stored == ended + len(waiting(world))
    assert one.stored + one.skipped + bool(one.held_us) == times


def begun(world: World) -> Job:
    """Run the one job there is, once it is due, for as long as it takes."""
    (job,) = waiting(world)
    world.clock.advance(us=max(0, job.at_us - world.now_us))
    claimed = world.claim(job.id)
    assert world.store.settle([Extend(claimed, world.now_us + HOUR_US, started=True)]) == [True]
    return claimed


def one_time_waits_until_the_job_before_it_has_ended(world: World) -> None:
    # T10
    began_us = world.now_us
    put(world.queues, "s", TEMPLATE, one_by_one("wait"))
    running = begun(world)
    world.clock.advance(us=3 * EVERY_US)
    assert advance(world.queues, "s") == []
    world.end(running, Outcome("done", world.now_us))
    assert len(advance(world.queues, "s")) == 1
    assert [job.due_us for job in waiting(world)] == [began_us + 2 * EVERY_US]
    assert found(world).skipped == 2
    all_are_accounted_for(world, began_us, ended=1)


def a_job_that_runs_is_asked_to_end_and_only_then_the_next_one_comes(world: World) -> None:
    # T10
    began_us = world.now_us
    put(world.queues, "s", TEMPLATE, one_by_one("replace"))
    running = begun(world)
    for _ in range(2):
        world.clock.advance(us=EVERY_US)
        assert advance(world.queues, "s") == []
        assert [claim.job_id for claim in cancel_requests.of_worker(world.store, "w1")] == [
            running.id
        ]
    cancel_requests.note(world.store, "w1", cancel_requests.of_worker(world.store, "w1"))
    assert advance(world.queues, "s") == []
    assert cancel_requests.of_worker(world.store, "w1") == {}  # asked once for each time
    world.end(running, Outcome("cancelled", world.now_us))
    assert len(advance(world.queues, "s")) == 1
    assert [job.due_us for job in waiting(world)] == [began_us + 3 * EVERY_US]
    all_are_accounted_for(world, began_us, ended=1)


def the_one_before_is_asked_to_end(kind: str, fault: Fault) -> None:
    """Fail each call in turn: of a step that asks for an end, of one that then stores a job."""
    for number in range(1, CALLS_MAX):
        with fresh(kind) as world:
            began_us = world.now_us
            put(world.queues, "s", TEMPLATE, one_by_one("replace"))
            running = begun(world)
            world.clock.advance(us=(FEW - 1) * EVERY_US)
            failing = FailingStore(world.store, {number: fault})
            other = world.other(failing)
            with suppress(Unknown):
                advance(other, "s")
            advance_all(world.other())
            assert cancel_requests.asked(world.store, [running.id]).keys() == {running.id}
            assert len(cancel_requests.of_worker(world.store, "w1")) == 1
            assert [job.id for job in waiting(world)] == [running.id]
            world.clock.advance(SECOND_US / 1e6)
            end(world, running)
            with suppress(Unknown):
                advance(other, "s")
            advance_all(world.other())
            due = [job.due_us for job in waiting(world)]
            assert due == [began_us + FEW * EVERY_US], f"call {number} of {failing.calls}"
            all_are_accounted_for(world, began_us, ended=1)
        if failing.calls < number:
            return
    raise AssertionError(f"two steps take more than {CALLS_MAX} calls")
