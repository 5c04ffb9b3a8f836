"""A time that comes while the job before it lives makes no job, and is told of."""

import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace

import pytest

from dueline.core.attempt import Outcome
from dueline.core.clock import SECOND_US
from dueline.core.errors import Unknown
from dueline.core.job import Job, JobId
from dueline.jobs.queue import Queues
from dueline.schedules import schedule as definition
from dueline.schedules import scheduler
from dueline.schedules.schedule import Schedule, Skip, Timing, step
from dueline.schedules.scheduler import EVERY_US as ROUND_US
from dueline.schedules.scheduler import SOONEST_US, advance, advance_all, put, store_scheduled_jobs
from tests.harness.clocks import HandClock
from tests.harness.cluster import Cluster
from tests.harness.failing_store import FailingStore, Fault
from tests.harness.interleaving import Turns, every_order
from tests.harness.queues import queues_on
from tests.harness.schedules import (
    EVERY_US,
    NOW_US,
    TEMPLATE,
    end,
    found,
    fresh,
    left_out,
    times_in,
    waiting,
)
from tests.harness.stepped_store import SteppedMemoryStore
from tests.harness.world import EVERY_KIND, World

ALONE = Timing(every_us=EVERY_US, catch_up="all", overlap="skip")


CALLS_MAX = 60
FEW = 2


def all_are_accounted_for(world: World, began_us: int, *, run: int) -> None:
    """Check that each time so far was run, waits, or was left out."""
    schedule = found(world)
    times = (schedule.through_us - began_us) // EVERY_US
    assert schedule.stored == run + len(waiting(world))
    assert schedule.stored + schedule.skipped == times


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


# --- which times make a job ---------------------------------------------------------------------


@pytest.mark.parametrize("lives", [True, False])
@pytest.mark.parametrize(
    ("since", "made", "overlapping"),
    [(0, 1, []), (-1, 0, []), (-3, -2, [-1, 0])],
)
def test_one_time_makes_a_job_and_only_if_the_job_before_has_ended(
    since: int, made: int, overlapping: list[int], *, lives: bool
) -> None:
    # T10
    schedule = Schedule(TEMPLATE, ALONE, b"seed", NOW_US + since * EVERY_US, last=b"before")
    times, after = step(schedule, NOW_US, lambda _: lives)
    come = [number for number in (made, *overlapping) if number <= 0]
    skipped = times_in(come if lives else overlapping)
    assert times == ([] if lives else times_in([made]))
    assert (after.stored, after.skipped) == (len(times), len(skipped))
    expected = (Skip("overlap", len(skipped), skipped[0], skipped[-1]),) if skipped else ()
    assert after.untold == (expected if times or skipped else ())
    assert after.last == (definition.job_id(schedule, times[0]) if times else b"before")
    assert step(after, NOW_US) == ([], after)


def test_a_time_to_come_is_left_open_until_it_comes() -> None:
    schedule = Schedule(TEMPLATE, ALONE, b"seed", NOW_US, last=b"before")
    assert step(schedule, NOW_US, lambda _: True) == ([], schedule)
    assert definition.next_decision_us(schedule, NOW_US) == NOW_US + EVERY_US
    assert definition.next_decision_us(replace(schedule, is_paused=True), NOW_US) is None
    allowed = replace(schedule, timing=replace(ALONE, overlap="allow"))
    assert definition.next_decision_us(allowed, NOW_US) is None


def test_what_was_missed_is_told_beside_what_overlaps() -> None:
    # T9, T10
    timing = replace(ALONE, catch_up="last")
    schedule = Schedule(TEMPLATE, timing, b"seed", NOW_US - 9 * EVERY_US, last=b"before")
    times, after = step(schedule, NOW_US, lambda _: False)
    missed, overlapping = times_in([-8, -7, -6, -5, -4]), times_in([-2, -1, 0])
    assert times == times_in([-3])
    assert after.untold == (
        Skip("missed", 5, missed[0], missed[-1]),
        Skip("overlap", 3, overlapping[0], overlapping[-1]),
    )


# --- what is stored -----------------------------------------------------------------------------


def test_while_a_job_waits_or_runs_or_is_tried_again_no_other_comes(world: World) -> None:
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


def test_a_dead_or_cancelled_job_stands_in_nobodys_way(world: World) -> None:
    put(world.queues, "s", TEMPLATE, ALONE)
    (first,) = waiting(world)
    world.clock.advance(us=EVERY_US)
    world.die(first.id)
    assert len(advance(world.queues, "s")) == 1
    world.queues.cancel(waiting(world)[0].id)
    assert len(advance(world.queues, "s")) == 1
    assert len(waiting(world)) == 1
    assert found(world).skipped == 0


def off_and_on(world: World) -> None:
    """Pause the schedule, and resume it."""
    scheduler.pause(world.queues, "s")
    scheduler.resume(world.queues, "s")


def test_a_change_a_pause_and_a_trigger_leave_the_job_before_what_it_was(world: World) -> None:
    put(world.queues, "s", TEMPLATE, replace(ALONE, overlap="allow"))
    world.clock.advance(us=EVERY_US)
    running = world.claim(waiting(world)[0].id, start=True)
    for change in (
        lambda: put(world.queues, "s", TEMPLATE, ALONE),
        lambda: put(world.queues, "s", TEMPLATE.changed(body=b"[2]"), ALONE),
        lambda: off_and_on(world),
    ):
        change()
        world.clock.advance(us=EVERY_US)
        advance_all(world.queues)
        assert [job.id for job in waiting(world)] == [running.id]
    assert found(world).skipped == 3
    scheduler.trigger(world.queues, "s")
    world.end(running, Outcome("done", world.now_us))
    assert len(advance_all(world.queues).skews_us) == 1  # a triggered one is beside its times


def test_a_row_that_is_overlooked_once_is_there(world: World) -> None:
    # rule Z4: without transactions
    if world.store.transactional:
        return
    a_row_may_be_overlooked_once(world)


def test_five_who_race_never_store_two_that_live(world: World) -> None:
    """See to a schedule from several places, and run its jobs, some of them for long."""
    # T10
    began_us, ran = world.now_us, 0
    racers = [world.other() for _ in range(5)]
    put(world.queues, "s", TEMPLATE, ALONE)
    chance = random.Random(7)
    for _ in range(60):
        world.clock.advance(chance.random() * 25)
        for racer in chance.sample(racers, 3):
            advance_all(racer)
        living = waiting(world)
        assert len(living) <= 1
        if living and living[0].at_us <= world.now_us and chance.random() < 0.5:
            end(world, living[0])
            ran += 1
        all_are_accounted_for(world, began_us, run=ran)
    assert ran > 10 < found(world).skipped


# --- wherever it is stopped, in whatever order --------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("fault", Fault)
@pytest.mark.parametrize("kind", EVERY_KIND)
def test_whichever_call_fails_one_lives_and_what_is_left_out_is_told_once(
    kind: str, fault: Fault
) -> None:
    """Fail each call in turn: of a step that leaves times out, of one that then stores a job."""
    # T9, T10, rule Z4
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
                int(attempt.error.split()[1]) if "times" in attempt.error else 1
                for attempt in left_out(world)
            ]
            assert sum(told) == found(world).skipped, f"call {number} of {failing.calls}"
        if failing.calls < number:
            return
    raise AssertionError(f"two steps take more than {CALLS_MAX} calls")


@pytest.mark.long
def test_in_whatever_order_two_see_to_it_one_job_lives() -> None:
    """Let one see to a schedule while a job ends, another comes by, and time passes."""

    # rule Z4
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

    assert every_order(lead, switches_max=2) > 50


# --- what is told, and when it is looked at -----------------------------------------------------


def test_skipped_occurrences_are_reported_in_a_full_history(world: World) -> None:
    # T9
    for history, count in (("attempts", 0), ("all", 2)):
        world.queues.engine.catalog.configure("q", history=history)
        timing = Timing(every_us=EVERY_US, overlap="skip")
        put(world.queues, "s", TEMPLATE, timing)
        world.clock.advance(us=EVERY_US)
        world.claim(waiting(world)[0].id, start=True)
        world.clock.advance(us=10 * EVERY_US)
        advance_all(world.queues)
        told = sorted(left_out(world), key=lambda attempt: attempt.due_us)
        assert [attempt.error.split()[:3] for attempt in told] == [
            ["missed:", "7", "times"], ["overlap:", "3", "times"],
        ][:count]  # fmt: skip
        assert all(attempt.ended_us == world.now_us and not attempt.worker for attempt in told)
        assert all(
            world.store.find([JobId(bytes.fromhex(attempt.job))]) == [None] for attempt in told
        )
        scheduler.remove(world.queues, "s")
        world.end(world.claim(waiting(world)[0].id), Outcome("done", world.now_us))


def test_the_chore_comes_back_when_a_time_is_decided(world: World) -> None:
    assert store_scheduled_jobs(world.queues, None).after is None
    put(world.queues, "s", TEMPLATE, Timing(every_us=2 * SECOND_US, overlap="skip"))
    report = store_scheduled_jobs(world.queues, None)
    assert report.after is not None
    assert SOONEST_US <= report.rest_us <= 4 * SECOND_US
    put(world.queues, "s", TEMPLATE, Timing(every_us=10 * ROUND_US, overlap="skip"))
    assert store_scheduled_jobs(world.queues, None).after is None
