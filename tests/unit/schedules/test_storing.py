"""Each time of a schedule is one job, whatever is lost."""

import random
from contextlib import suppress
from dataclasses import replace

import pytest

from dueline.api.maintenance import make_maintenance_threads, tasks_of
from dueline.core.attempt import Outcome
from dueline.core.clock import SECOND_US
from dueline.core.errors import BadInput, NotFound, Unknown
from dueline.core.job import State
from dueline.schedules import schedule as definition
from dueline.schedules import scheduler
from dueline.schedules.schedule import Template, Timing
from dueline.schedules.scheduler import advance_all, put
from dueline.worker.tally import Tally
from tests.harness.cases import schedules_storing as cases
from tests.harness.cases.schedules_storing import (
    CALLS_MAX,
    CHANGES,
    TIMING,
    a_change_is_seen_through,
    changes,
    each_time_is_one_job,
    no_birth_is_sent_again_when_its_key_may_be_forgotten,
    run_due,
    times,
)
from tests.harness.failing_store import FailingStore, Fault
from tests.harness.schedules import EVERY_US, TEMPLATE, fresh, waiting
from tests.harness.world import EVERY_KIND, World


def test_each_time_is_one_job_with_what_it_asks_for(world: World) -> None:
    cases.each_time_is_one_job_with_what_it_asks_for(world)


def test_a_job_is_spread_over_its_window_the_same_each_time(world: World) -> None:
    # T7
    put(world.queues, "s", replace(TEMPLATE, window_us=10 * SECOND_US), TIMING)
    spread = [job.at_us - job.due_us for job in waiting(world)]
    assert len(set(spread)) == len(spread) == 3
    assert all(0 <= us < 10 * SECOND_US for us in spread)


def test_five_who_race_store_each_time_once(world: World) -> None:
    # T8
    began_us = world.now_us
    put(world.queues, "s", TEMPLATE, TIMING)
    racers = [world.other() for _ in range(5)]
    chance, ran = random.Random(7), list[int]()
    for _ in range(60):
        world.clock.advance(chance.random() * 25)
        for racer in chance.sample(racers, 3):
            advance_all(racer)
        ran += run_due(world)
    assert ran == times(world, began_us)


@pytest.mark.parametrize("fault", Fault)
@pytest.mark.parametrize("kind", EVERY_KIND)
def test_whichever_call_fails_each_time_is_one_job(kind: str, fault: Fault) -> None:
    # T8, rules Z1 and Z2
    each_time_is_one_job(kind, fault)


@pytest.mark.long
@pytest.mark.parametrize("fault", Fault)
@pytest.mark.parametrize("kind", EVERY_KIND)
def test_a_change_that_breaks_off_is_seen_through_or_has_changed_nothing(
    kind: str, fault: Fault
) -> None:
    # rule Z3
    a_change_is_seen_through(kind, fault)


def test_a_change_withdraws_what_waits_and_leaves_what_runs(world: World) -> None:
    put(world.queues, "s", TEMPLATE, TIMING)
    world.clock.advance(us=EVERY_US)
    running = world.claim(waiting(world)[0].id, start=True)
    assert put(world.queues, "s", Template("t", "q", 0, b"[2]"), TIMING)
    bodies = [(job.body, job.state) for job in waiting(world)]
    assert bodies[0] == (b"[1]", State.STARTED)
    assert {body for body, _ in bodies[1:]} == {b"[2]"}
    world.end(running, Outcome("done", world.now_us))


def test_putting_the_same_again_changes_nothing(world: World) -> None:
    put(world.queues, "s", TEMPLATE, TIMING)
    before = definition.stored(world.store, "s")
    world.clock.advance(3)
    assert not put(world.other(), "s", TEMPLATE, TIMING)
    assert definition.stored(world.store, "s") == before


def test_a_pause_leaves_out_what_it_covers(world: World) -> None:
    put(world.queues, "s", TEMPLATE, Timing(every_us=EVERY_US, catch_up="all"))
    scheduler.pause(world.queues, "s")
    assert waiting(world) == []
    world.clock.advance(us=10 * EVERY_US + SECOND_US)
    assert advance_all(world.queues).skews_us == []
    scheduler.resume(world.queues, "s")
    assert [job.due_us > world.now_us for job in waiting(world)] == [True] * 3
    scheduler.remove(world.queues, "s")
    assert waiting(world) == []
    assert scheduler.all_schedules(world.queues.engine) == []
    with pytest.raises(NotFound):
        scheduler.pause(world.queues, "s")


def test_the_skew_of_a_job_is_how_late_it_was_stored(world: World) -> None:
    tally = Tally()
    leader = tasks_of(world.queues, tally)[0]
    worker = make_maintenance_threads(world.queues, "w", tally=tally)
    put(world.queues, "s", TEMPLATE, Timing(every_us=EVERY_US, catch_up="last"))
    world.clock.advance(us=EVERY_US)
    for _ in range(3):  # without transactions, another step inserts the jobs
        leader.step(world.queues.engine, None)
    skews = tally.totals().skews
    assert (sum(skews.counts), skews.total_us) == (1, 0)
    world.clock.advance(us=8 * EVERY_US)  # no process stores jobs: the 5th is missed, the 6th kept
    for _ in range(3):
        worker.check_schedules()
    skews = tally.totals().skews
    assert (sum(skews.counts), skews.total_us) == (1 + 7, (3 + 2 + 1) * EVERY_US)


def test_one_that_was_removed_can_be_made_again(world: World) -> None:
    put(world.queues, "s", TEMPLATE, TIMING)
    scheduler.remove(world.queues, "s")
    put(world.queues, "s", TEMPLATE, TIMING)
    assert len(waiting(world)) == 3


def test_what_was_missed_runs_late_and_once(world: World) -> None:
    cases.what_was_missed_runs_late_and_once(world)


def test_no_birth_is_sent_again_when_its_key_may_be_forgotten() -> None:
    # rules Z2 and B1
    no_birth_is_sent_again_when_its_key_may_be_forgotten()


def test_a_schedule_that_cannot_be_is_refused_and_nothing_is_written(world: World) -> None:
    for name, template, timing in (
        ("bad name", TEMPLATE, TIMING),
        ("s", Template("t", "No!", 0, b"[]"), TIMING),
        ("s", Template("t", "q", 0, b"[]", 2**40), TIMING),
        ("s", TEMPLATE, Timing("never")),
    ):
        with pytest.raises(BadInput):
            put(world.queues, name, template, timing)
    assert definition.all_stored(world.store) == []


@pytest.mark.long
@pytest.mark.parametrize("kind", EVERY_KIND)
def test_what_was_begun_with_a_schedule_is_finished_before_it_moves(kind: str) -> None:
    """Fail each call of each change in turn; `finish_started` leaves nothing to withdraw."""
    for place in range(CHANGES):
        for number in range(1, CALLS_MAX):
            with fresh(kind) as world:
                put(world.queues, "s", TEMPLATE, TIMING)
                failing = FailingStore(world.store, {number: Fault.AFTER})
                with suppress(Unknown):
                    changes(world)[place](world.other(failing))
                found = scheduler.finish_started(world.other(), "s")
                assert found is None or not found.schedule.is_sending()
                assert found is None or not (found.schedule.recalled or found.schedule.ended)
                is_active = found is not None and not found.schedule.is_paused
                bodies = {found.schedule.template.body} if found and is_active else set()
                assert {job.body for job in waiting(world)} <= bodies
            if failing.calls < number:
                break
