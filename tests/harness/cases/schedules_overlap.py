"""A time that comes while the job before it lives makes no job, and is told of."""

from collections.abc import Callable, Sequence
from contextlib import suppress

from dueline.core.attempt import Outcome
from dueline.core.clock import SECOND_US
from dueline.core.errors import Unknown
from dueline.core.job import Job, JobId
from dueline.jobs.queue import Queues
from dueline.schedules import scheduler
from dueline.schedules.schedule import Timing
from dueline.schedules.scheduler import advance, advance_all, put
from tests.harness.clocks import HandClock
from tests.harness.cluster import Cluster
from tests.harness.failing_store import FailingStore, Fault
from tests.harness.interleaving import Turns, every_order
from tests.harness.queues import queues_on
from tests.harness.schedules import (
    EVERY_US,
    TEMPLATE,
    end,
    found,
    fresh,
    left_out,
    waiting,
)
from tests.harness.stepped_store import SteppedMemoryStore
from tests.harness.world import World

ALONE = Timing(every_us=EVERY_US, catch_up="all", overlap="skip")


CALLS_MAX = 60


FEW = 2


def all_are_accounted_for(world: World, began_us: int, *, run: int) -> None:
    """Check that each time so far was run, waits, or was left out."""
    one = found(world)
    times = (one.through_us - began_us) // EVERY_US
    assert one.stored == run + len(waiting(world))
    assert one.stored + one.skipped == times


def while_a_job_waits_or_runs_or_is_tried_again_no_other_comes(world: World) -> None:
    # T10
    began_us = world.now_us
    put(world.queues, "s", TEMPLATE, ALONE)
    (first,) = waiting(world)
    for _ in range(2):  # it waits
        world.clock.advance(us=EVERY_US)
        assert advance(world.queues, "s") == []
    claimed = world.claim(first.id, start=True)
    world.clock.advance(us=EVERY_US)
    assert advance(world.queues, "s") == []  # it runs
    world.back(claimed, after_s=1, errors=1, error="ValueError: bad")
    world.clock.advance(us=EVERY_US)
    assert advance(world.queues, "s") == []  # it is to be tried again
    assert [job.id for job in waiting(world)] == [first.id]
    assert found(world).skipped == 3
    end(world, first)
    assert len(advance(world.queues, "s")) == 1
    assert [job.due_us for job in waiting(world)] == [began_us + 5 * EVERY_US]
    all_are_accounted_for(world, began_us, run=1)


def a_row_may_be_overlooked_once(world: World) -> None:
    """Answer the first look for a job with nothing, as while its row is moved."""
    put(world.queues, "s", TEMPLATE, ALONE)
    find, looks = world.store.find, list[int]()

    def overlook(ids: Sequence[JobId]) -> Sequence[Job | None]:
        looks.append(len(ids))
        return [None] * len(ids) if len(looks) == 1 else find(ids)

    other = world.other()
    other.engine.store.find = overlook  # type: ignore[method-assign]
    world.clock.advance(us=EVERY_US)
    assert advance(other, "s") == []
    assert len(looks) > 1


def one_lives_and_the_rest_is_told(kind: str, fault: Fault) -> None:
    """Fail each call in turn: of a step that leaves times out, of one that then stores a job."""
    for number in range(1, CALLS_MAX):
        with fresh(kind) as world:
            began_us = world.now_us
            world.queues.engine.catalog.configure("q", history="all")
            put(world.queues, "s", TEMPLATE, ALONE)
            (first,) = waiting(world)
            world.clock.advance(us=FEW * EVERY_US)
            failing = FailingStore(world.store, {number: fault})
            other = world.other(failing)
            with suppress(Unknown):
                advance(other, "s")
                assert [job.id for job in waiting(world)] == [first.id]
            world.clock.advance(SECOND_US / 1e6)
            end(world, first)
            with suppress(Unknown):
                advance(other, "s")
            advance_all(world.other())
            assert len(waiting(world)) == 1
            all_are_accounted_for(world, began_us, run=1)
            told = [
                int(one.error.split()[1]) if "times" in one.error else 1 for one in left_out(world)
            ]
            assert sum(told) == found(world).skipped, f"call {number} of {failing.calls}"
        if failing.calls < number:
            return
    raise AssertionError(f"two steps take more than {CALLS_MAX} calls")


def a_scheduler_against_another() -> int:
    """Let one see to a schedule while a job ends, another comes by, and time passes."""

    def lead(turns: Turns) -> None:
        clock, cluster = HandClock(), Cluster()

        def process(step: Callable[[str], None] = lambda _name: None) -> Queues:
            store = SteppedMemoryStore(clock, cluster=cluster, step=step)
            queues = queues_on(store, clock)
            queues.engine.catalog.settings("q")
            return queues

        slow, quick = process(turns.step), process(turns.step)
        world = World(SteppedMemoryStore(clock, cluster=cluster), clock)
        began_us = world.now_us
        put(process(), "s", TEMPLATE, ALONE)
        clock.advance(us=FEW * EVERY_US)

        def live_on() -> None:
            end(world, waiting(world)[0])
            advance(quick, "s")
            assert len(waiting(world)) <= 1
            clock.advance(us=EVERY_US)
            advance(quick, "s")
            assert len(waiting(world)) == 1

        turns.run([lambda: advance(slow, "s"), live_on])
        advance_all(process())
        assert len(waiting(world)) == 1
        all_are_accounted_for(world, began_us, run=1)

    return every_order(lead, switches_max=2)


def what_is_left_out_is_told_where_the_history_is_of_everything(world: World) -> None:
    # T9
    for history, count in (("attempts", 0), ("all", 2)):
        world.queues.engine.catalog.configure("q", history=history)
        timing = Timing(every_us=EVERY_US, overlap="skip")
        put(world.queues, "s", TEMPLATE, timing)
        world.clock.advance(us=EVERY_US)
        world.claim(waiting(world)[0].id, start=True)
        world.clock.advance(us=10 * EVERY_US)
        advance_all(world.queues)
        told = sorted(left_out(world), key=lambda one: one.due_us)
        assert [one.error.split()[:3] for one in told] == [
            ["missed:", "7", "times"], ["overlap:", "3", "times"],
        ][:count]  # fmt: skip
        assert all(one.ended_us == world.now_us and not one.worker for one in told)
        assert all(world.store.find([JobId(bytes.fromhex(one.job))]) == [None] for one in told)
        scheduler.remove(world.queues, "s")
        world.end(world.claim(waiting(world)[0].id), Outcome("done", world.now_us))
