"""Each time of a schedule is one job, whatever is lost (V5)."""

import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import fields
from pathlib import Path

import pytest

from dueline.api.maintenance import make_maintenance_threads
from dueline.api.maintenance_tasks import tasks_of
from dueline.core.attempt import Outcome
from dueline.core.clock import SECOND_US
from dueline.core.errors import BadInput, NotFound, Unknown
from dueline.core.job import State
from dueline.jobs.decisions import RESEND_US_MAX
from dueline.jobs.queue import Queues
from dueline.schedules import schedule as definition
from dueline.schedules import scheduler
from dueline.schedules.schedule import Schedule, Template, Timing
from dueline.schedules.scheduler import advance, advance_all, put
from dueline.worker.tally import Tally
from tests.harness.failing_store import FailingStore, Fault
from tests.harness.schedules import EVERY_US, TEMPLATE, fresh, waiting
from tests.harness.world import EVERY_KIND, World, world_on

TIMING = Timing(every_us=EVERY_US)


CALLS_MAX = 60
CHANGES = 5


def run_due(world: World) -> list[int]:
    """Run all jobs that are due; answer their times."""
    due = [job for job in waiting(world) if job.at_us <= world.now_us]
    for job in due:
        world.end(world.claim(job.id), Outcome("done", world.now_us))
    return [job.due_us for job in due]


def times(world: World, began_us: int) -> list[int]:
    """List the times there were of TIMING so far."""
    return list(range(began_us, world.now_us + 1, EVERY_US))[1:]


def changes(world: World) -> list[Callable[[Queues], object]]:
    """List what people do to a schedule."""
    other = TEMPLATE.changed(body=b"[2]")
    return [
        lambda queues: put(queues, "s", other, TIMING),
        lambda queues: put(queues, "s", TEMPLATE, Timing(every_us=7 * SECOND_US)),
        lambda queues: scheduler.pause(queues, "s"),
        lambda queues: scheduler.resume(queues, "s"),
        lambda queues: scheduler.remove(queues, "s"),
    ]


def expected(timing: Timing, from_us: int) -> list[int]:
    """List the times of the next minute and a half."""
    times = list[int]()
    for us in definition.times_after(timing, from_us):
        if us > from_us + 90 * SECOND_US:
            return times
        times.append(us)
    return times


def test_each_time_is_one_job_with_what_it_asks_for(world: World) -> None:
    # T8
    began_us = world.now_us
    template = Template("t", "q", 0, b'["a"]', 3, "acme", 5 * SECOND_US, tags=("nightly",))
    assert put(world.queues, "s", template, TIMING)
    jobs = waiting(world)
    assert [job.due_us - began_us for job in jobs] == [EVERY_US, 2 * EVERY_US, 3 * EVERY_US]
    for job in jobs:
        assert (job.task, job.body, job.lane.priority, job.lane.tenant) == (
            "t",
            b'["a"]',
            3,
            "acme",
        )
        assert b"nightly" in job.opts
        assert str(job.due_us + 5 * SECOND_US).encode() in job.opts
        assert job.at_us == job.pos_us == job.due_us
    assert advance(world.queues, "s") == []
    world.clock.advance(us=EVERY_US)
    assert len(advance_all(world.queues).skews_us) == 1


def test_a_job_is_spread_over_its_window_the_same_each_time(world: World) -> None:
    # T7
    put(world.queues, "s", TEMPLATE.changed(window_us=10 * SECOND_US), TIMING)
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


@pytest.mark.slow
@pytest.mark.parametrize("fault", Fault)
@pytest.mark.parametrize("kind", EVERY_KIND)
def test_whichever_call_fails_each_time_is_one_job(kind: str, fault: Fault) -> None:
    """Fail each call of a step in turn; run what was stored before anybody else comes by."""
    # T8, rules Z1 and Z2
    for number in range(1, CALLS_MAX):
        with fresh(kind) as world:
            began_us = world.now_us
            put(world.queues, "s", TEMPLATE, TIMING)
            world.clock.advance(us=2 * EVERY_US)
            failing = FailingStore(world.store, {number: fault})
            with suppress(Unknown):
                advance(world.other(failing), "s")
            ran = run_due(world)
            world.clock.advance(us=4 * EVERY_US)
            ran += run_due(world)
            advance_all(world.other())
            world.clock.advance(us=EVERY_US)
            advance_all(world.other())
            ran += run_due(world)
            assert sorted(ran) == times(world, began_us), f"call {number} of {failing.calls}"
        if failing.calls < number:
            return
    raise AssertionError(f"a step takes more than {CALLS_MAX} calls")


@pytest.mark.long
@pytest.mark.parametrize("fault", Fault)
@pytest.mark.parametrize("kind", EVERY_KIND)
def test_a_change_that_breaks_off_is_seen_through_or_has_changed_nothing(
    kind: str, fault: Fault
) -> None:
    """Fail each call of each change in turn, and let somebody else come by."""
    # rule Z3
    for place in range(CHANGES):
        for number in range(1, CALLS_MAX):
            with fresh(kind) as world:
                put(world.queues, "s", TEMPLATE, TIMING)
                failing = FailingStore(world.store, {number: fault})
                with suppress(Unknown):
                    changes(world)[place](world.other(failing))
                advance_all(world.other())
                stored = definition.stored(world.store, "s")
                jobs = [(job.due_us, job.body) for job in waiting(world)]
                if stored is None or stored.schedule.is_paused:
                    assert jobs == []
                else:
                    now = stored.schedule
                    times = expected(now.timing, world.now_us)
                    assert [us for us, _ in jobs] == [us for us in times if us <= now.through_us]
                    assert {body for _, body in jobs} == {now.template.body}
            if failing.calls < number:
                break


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
    # T9
    began_us = world.now_us
    put(world.queues, "s", TEMPLATE, Timing(every_us=EVERY_US, catch_up="all", catch_up_max=7))
    first = {job.due_us for job in waiting(world)}
    world.clock.advance(us=20 * EVERY_US)
    advance_all(world.queues)
    ran = run_due(world)
    assert sorted(ran)[-10:] == times(world, began_us)[-10:]
    assert first < set(ran)
    assert len(ran) == len(set(ran)) == 3 + 7 + 3
    stored = definition.stored(world.store, "s")
    assert stored is not None
    assert stored.schedule.skipped == 20 - 13


def test_no_birth_is_sent_again_when_its_key_may_be_forgotten() -> None:
    """Stop between the keys and the jobs, and come back after a day."""
    # rules Z2 and C5
    world = world_on("steps", Path())
    put(world.queues, "s", TEMPLATE, TIMING)
    world.clock.advance(us=EVERY_US)
    stored = None
    for number in range(1, 10):
        failing = FailingStore(world.store, {number: Fault.BEFORE})
        with suppress(Unknown):
            advance(world.other(failing), "s")
        stored = definition.stored(world.store, "s")
        if stored and stored.schedule.births:  # their keys are written down, and they are not sent
            break
    assert stored is not None
    assert stored.schedule.births
    before = {job.id for job in waiting(world)}
    world.clock.advance(us=RESEND_US_MAX)
    advance(world.queues, "s")
    lost = {definition.job_id(stored.schedule, birth[0]) for birth in stored.schedule.births}
    assert not lost & {job.id for job in waiting(world)}
    assert before <= {job.id for job in waiting(world)}


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
                stored = scheduler.finish_started(world.other(), "s")
                assert stored is None or not stored.schedule.is_sending()
                assert stored is None or not (stored.schedule.recalled or stored.schedule.ended)
                is_active = stored is not None and not stored.schedule.is_paused
                bodies = {stored.schedule.template.body} if stored and is_active else set()
                assert {job.body for job in waiting(world)} <= bodies
            if failing.calls < number:
                break


@pytest.mark.parametrize(
    "wrong",
    [
        Template("t", "", 0, b""),
        Template("t", "q", 0, b"", 2**31),
        Template("t", "q", 0, b"", 0, "x" * 1000),
    ],
)
def test_a_schedule_whose_jobs_could_not_be_enqueued_is_refused(wrong: Template) -> None:
    world = world_on("memory", Path())
    with pytest.raises(BadInput):
        put(world.queues, "s", wrong, TIMING)
    assert definition.stored(world.store, "s") is None


def test_a_schedule_of_which_only_the_definition_is_stored_has_no_progress() -> None:
    schedule = Schedule(TEMPLATE, TIMING, b"seed", 5)
    assert not any(getattr(schedule, field.name) for field in fields(Schedule)[4:])
