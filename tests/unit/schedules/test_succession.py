"""A time that comes while the job before it lives waits, or ends that job."""

import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import get_args

import pytest

from dueline.core.attempt import Outcome
from dueline.core.clock import SECOND_US
from dueline.core.errors import Unknown
from dueline.core.job import Job, JobId
from dueline.core.store import Extend
from dueline.jobs import cancel_requests
from dueline.jobs.queue import Queues
from dueline.schedules import schedule as definition
from dueline.schedules import scheduler
from dueline.schedules.schedule import Overlap, Schedule, Skip, Timing, step
from dueline.schedules.scheduler import advance, advance_all, put
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

CALLS_MAX = 80
HOUR_US = 3600 * SECOND_US
FEW = 2


def one_by_one(overlap: Overlap) -> Timing:
    """Make a timing whose jobs come one after the other."""
    return Timing(every_us=EVERY_US, catch_up="all", overlap=overlap)


def all_are_accounted_for(world: World, began_us: int, *, ended: int) -> None:
    """Check that each time so far came to a job, waits, or was left out."""
    schedule = found(world)
    times = (schedule.through_us - began_us) // EVERY_US
    assert schedule.stored == ended + len(waiting(world))
    assert schedule.stored + schedule.skipped + bool(schedule.held_us) == times


def begun(world: World) -> Job:
    """Run the one job there is, once it is due, for as long as it takes."""
    (job,) = waiting(world)
    world.clock.advance(us=max(0, job.at_us - world.now_us))
    claimed = world.claim(job.id)
    assert world.store.settle([Extend(claimed, world.now_us + HOUR_US, started=True)]) == [True]
    return claimed


IN_TURN: Sequence[Overlap] = ("wait", "replace")


# --- which times make a job ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("overlap", "held", "since", "lives", "made", "holds", "left"),
    [
        ("wait", None, -1, True, None, 0, []),
        ("wait", None, -3, True, None, -2, [-1, 0]),
        ("wait", -5, -2, True, None, -5, [-1, 0]),
        ("wait", -5, 0, False, -5, None, []),
        ("wait", -5, -2, False, -5, -1, [0]),
        ("wait", None, 0, False, 1, None, []),
        ("replace", None, -1, True, None, 0, []),
        ("replace", None, -3, True, None, 0, [-2, -1]),
        ("replace", -5, -2, True, None, 0, [-5, -1]),
        ("replace", -5, 0, True, None, -5, []),
        ("replace", -5, 0, False, -5, None, []),
        ("replace", -5, -2, False, 0, None, [-5, -1]),
        ("replace", None, 0, False, 1, None, []),
    ],
)
def test_one_time_waits_the_first_or_the_last(
    overlap: Overlap, held: int | None, since: int, *, lives: bool, made: int | None,
    holds: int | None, left: list[int],
) -> None:  # fmt: skip
    # T10, rule Z5
    held_us = 0 if held is None else times_in([held])[0]
    schedule = Schedule(
        TEMPLATE, one_by_one(overlap), b"seed", times_in([since])[0], last=b"before",
        held_us=held_us,
    )  # fmt: skip
    times, after = step(schedule, NOW_US, lambda _: lives)
    assert times == ([] if made is None else times_in([made]))
    assert after.held_us == (0 if holds is None else times_in([holds])[0])
    skipped = times_in(left)
    expected = (Skip("overlap", len(skipped), skipped[0], skipped[-1]),) if skipped else ()
    assert after.untold == expected
    assert after.skipped == len(skipped)
    is_newly_held = overlap == "replace" and holds is not None and holds != held
    assert after.ended == (b"before" if is_newly_held else b"")
    assert definition.next_decision_us(after, NOW_US) == (
        NOW_US if after.held_us else NOW_US + (2 if made == 1 else 1) * EVERY_US
    )


@pytest.mark.parametrize("overlap", IN_TURN)
@pytest.mark.parametrize("lives", [True, False])
def test_what_waits_has_come_though_this_clock_is_behind(overlap: Overlap, *, lives: bool) -> None:
    held_us = NOW_US + EVERY_US // 2
    schedule = Schedule(
        TEMPLATE, one_by_one(overlap), b"seed", held_us, last=b"before", held_us=held_us
    )
    times, after = step(schedule, NOW_US, lambda _: lives)
    assert (times, after.held_us) == (([], held_us) if lives else ([held_us], 0))
    assert after.skipped == 0


def test_what_waits_is_stored_at_once_where_jobs_may_overlap_by_now() -> None:
    schedule = Schedule(TEMPLATE, one_by_one("wait"), b"seed", NOW_US, held_us=NOW_US - EVERY_US)
    times, after = step(replace(schedule, timing=one_by_one("allow")), NOW_US)
    assert times[:2] == times_in([-1, 1])
    assert after.held_us == 0


# --- what is stored -----------------------------------------------------------------------------


def test_one_time_waits_until_the_job_before_it_has_ended(world: World) -> None:
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


def test_a_job_that_waits_is_ended_for_the_next_one(world: World) -> None:
    # T10
    began_us = world.now_us
    put(world.queues, "s", TEMPLATE, one_by_one("replace"))
    (old,) = waiting(world)
    world.clock.advance(us=3 * EVERY_US)
    assert len(advance(world.queues, "s")) == 1
    assert world.queues.find(old.id).status == "cancelled"
    assert [job.due_us for job in waiting(world)] == [began_us + 3 * EVERY_US]
    all_are_accounted_for(world, began_us, ended=1)


def test_a_job_that_runs_is_asked_to_end_and_only_then_the_next_one_comes(world: World) -> None:
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


@pytest.mark.parametrize("overlap", IN_TURN)
def test_a_change_keeps_what_waits_and_a_pause_lets_go_of_it(
    world: World, overlap: Overlap
) -> None:
    world.queues.engine.catalog.configure("q", history="all")
    put(world.queues, "s", TEMPLATE, one_by_one(overlap))
    running = begun(world)
    world.clock.advance(us=EVERY_US)
    advance(world.queues, "s")
    put(world.queues, "s", TEMPLATE.changed(body=b"[2]"), one_by_one(overlap))
    assert found(world).held_us
    world.end(running, Outcome("done", world.now_us))
    advance_all(world.queues)
    running = begun(world)
    assert running.body == b"[2]"
    for act in (scheduler.pause, scheduler.remove):
        world.clock.advance(us=EVERY_US)
        advance_all(world.queues)
        skipped, told = found(world).skipped, len(left_out(world))
        act(world.queues, "s")
        stored = definition.stored(world.store, "s")
        if stored is not None:
            assert (stored.schedule.held_us, stored.schedule.skipped) == (0, skipped + 1)
            scheduler.resume(world.queues, "s")
        assert len(left_out(world)) == told + 1
    assert [job.id for job in waiting(world)] == [running.id]


@pytest.mark.slow
@pytest.mark.parametrize("overlap", [policy for policy in get_args(Overlap) if policy != "allow"])
def test_five_who_race_never_have_two_that_live(world: World, overlap: Overlap) -> None:
    # T10
    began_us, ended = world.now_us, 0
    racers = [world.other() for _ in range(5)]
    put(world.queues, "s", TEMPLATE, one_by_one(overlap))
    chance = random.Random(7)
    for _ in range(60):
        world.clock.advance(chance.random() * 25)
        for racer in chance.sample(racers, 3):
            before = {job.id for job in waiting(world)}
            advance_all(racer)
            ended += len(before - {job.id for job in waiting(world)})
        living = waiting(world)
        assert len(living) <= 1
        if living and living[0].is_claimed():
            if chance.random() < 0.4:
                end(world, living[0])
                ended += 1
        elif living and living[0].at_us <= world.now_us and chance.random() < 0.5:
            begun(world)
        all_are_accounted_for(world, began_us, ended=ended)
    assert ended > 7 < found(world).skipped


# --- wherever it is stopped, in whatever order --------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("fault", Fault)
@pytest.mark.parametrize("kind", EVERY_KIND)
def test_whichever_call_fails_the_job_before_is_asked_to_end_and_the_next_one_comes(
    kind: str, fault: Fault
) -> None:
    """Fail each call in turn: of a step that asks for an end, of one that then stores a job."""
    # T10, rule Z5
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


@pytest.mark.long
def test_in_whatever_order_two_replace_a_job_one_lives_and_is_let_be() -> None:
    """Let one replace a job that waits while another does so, twice."""

    # rule Z5
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
        put(process(), "s", TEMPLATE, one_by_one("replace"))
        clock.advance(us=FEW * EVERY_US)
        begun: list[JobId] = []

        def go_on() -> None:
            advance(quick, "s")
            begun.extend(job.id for job in waiting(world))
            advance(quick, "s")

        turns.run([lambda: advance(slow, "s"), go_on])
        advance_all(process())
        living = waiting(world)
        assert [job.due_us for job in living] == [began_us + FEW * EVERY_US]
        assert begun == [living[0].id]  # the one that came in its place was let be
        all_are_accounted_for(world, began_us, ended=1)

    assert every_order(lead, switches_max=2) > 50
