"""A time that comes while the job before it lives makes no job, and is told of."""

import random
from dataclasses import replace

import pytest

from dueline.core.attempt import Outcome
from dueline.core.clock import SECOND_US
from dueline.schedules import schedule as definition
from dueline.schedules import scheduler
from dueline.schedules.schedule import Schedule, Skip, Timing, step
from dueline.schedules.scheduler import EVERY_US as ROUND_US
from dueline.schedules.scheduler import SOONEST_US, advance, advance_all, put, store_scheduled_jobs
from tests.harness.cases import schedules_overlap as cases
from tests.harness.cases.schedules_overlap import (
    ALONE,
    a_row_may_be_overlooked_once,
    a_scheduler_against_another,
    all_are_accounted_for,
    one_lives_and_the_rest_is_told,
)
from tests.harness.failing_store import Fault
from tests.harness.schedules import (
    EVERY_US,
    NOW_US,
    TEMPLATE,
    end,
    found,
    times_in,
    waiting,
)
from tests.harness.world import EVERY_KIND, World

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
    cases.while_a_job_waits_or_runs_or_is_tried_again_no_other_comes(world)


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
        lambda: put(world.queues, "s", replace(TEMPLATE, body=b"[2]"), ALONE),
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
    # T10
    they_never_store_two_that_live(world)


def they_never_store_two_that_live(world: World) -> None:
    """See to a schedule from several places, and run its jobs, some of them for long."""
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


@pytest.mark.parametrize("fault", Fault)
@pytest.mark.parametrize("kind", EVERY_KIND)
def test_whichever_call_fails_one_lives_and_what_is_left_out_is_told_once(
    kind: str, fault: Fault
) -> None:
    # T9, T10, rule Z4
    one_lives_and_the_rest_is_told(kind, fault)


@pytest.mark.long
def test_in_whatever_order_two_see_to_it_one_job_lives() -> None:
    # rule Z4
    assert a_scheduler_against_another() > 50


# --- what is told, and when it is looked at -----------------------------------------------------


def test_skipped_occurrences_are_reported_in_a_full_history(world: World) -> None:
    cases.what_is_left_out_is_told_where_the_history_is_of_everything(world)


def test_the_chore_comes_back_when_a_time_is_decided(world: World) -> None:
    assert store_scheduled_jobs(world.queues, None).after is None
    put(world.queues, "s", TEMPLATE, Timing(every_us=2 * SECOND_US, overlap="skip"))
    report = store_scheduled_jobs(world.queues, None)
    assert report.after is not None
    assert SOONEST_US <= report.rest_us <= 4 * SECOND_US
    put(world.queues, "s", TEMPLATE, Timing(every_us=10 * ROUND_US, overlap="skip"))
    assert store_scheduled_jobs(world.queues, None).after is None
