"""An occurrence is one job, also if its schedule changes around it."""

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import takewhile
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as some

from dueline import Context, Dueline
from dueline.core.clock import SECOND_US
from dueline.core.errors import StoreMoved
from dueline.core.features import MOVED
from dueline.jobs.queue import Queues
from dueline.schedules import schedule as definition
from dueline.schedules import scheduler
from dueline.schedules.schedule import Overlap, Schedule, Timing, step, times_after
from dueline.schedules.scheduler import advance_all, put
from tests.harness.cases import schedules_changes as cases
from tests.harness.cases.schedules_changes import CHANGES, HAD, Runs, jobs_of
from tests.harness.failing_store import Fault
from tests.harness.schedules import EVERY_US, NOW_US, TEMPLATE, found
from tests.harness.world import EVERY_KIND, World, world_on


@pytest.mark.parametrize("had", HAD)
@pytest.mark.parametrize("change", CHANGES)
def test_an_occurrence_is_one_job_whatever_changes_just_before_it(
    world: World, change: str, had: str
) -> None:
    # T8, rule Z7
    if cases.may_be_had(world, had):
        cases.an_occurrence_is_one_job(world, change, had, "allow")


@pytest.mark.long
@pytest.mark.parametrize("kind", ["memory", "steps"])
@pytest.mark.parametrize("overlap", [one for one in get_args(Overlap) if one != "allow"])
@pytest.mark.parametrize("had", HAD)
def test_so_it_is_where_jobs_must_not_overlap(kind: str, had: str, overlap: Overlap) -> None:
    # T10, rule Z7
    for change in CHANGES:
        world = world_on(kind, Path())
        if cases.may_be_had(world, had):
            cases.an_occurrence_is_one_job(world, change, had, overlap)


@pytest.mark.long
@pytest.mark.parametrize("had", HAD)
@pytest.mark.parametrize("fault", Fault)
@pytest.mark.parametrize("kind", EVERY_KIND)
def test_a_change_that_breaks_off_leaves_one_job(kind: str, fault: Fault, had: str) -> None:
    # rule Z7
    cases.a_change_that_breaks_off_leaves_one_job(kind, fault, had)


@pytest.mark.parametrize("overlap", get_args(Overlap))
def test_an_occurrence_that_came_just_before_a_change_is_one_job(
    world: World, overlap: Overlap
) -> None:
    # its time has come, and no process has decided it yet
    runs, began_us = Runs(world), world.now_us
    put(world.queues, "s", TEMPLATE, Timing(every_us=EVERY_US, overlap=overlap))
    for body, every_us in ((b"[2]", EVERY_US), (b"[3]", EVERY_US), (b"[3]", 3 * EVERY_US)):
        runs.run()
        world.clock.advance(us=EVERY_US + SECOND_US // 10)
        runs.run()
        start_us = found(world).timing.start_us
        timing = Timing(every_us=every_us, overlap=overlap, start_us=start_us)
        put(world.other(), "s", replace(TEMPLATE, body=body), timing)
        runs.run()
    assert runs.starts == {began_us + number * EVERY_US: 1 for number in (1, 2, 3)}


def test_missed_occurrences_are_made_up_for_after_a_deploy_with_other_arguments(
    world: World,
) -> None:
    timing, runs = Timing(every_us=EVERY_US, catch_up="all"), Runs(world)
    put(world.queues, "s", TEMPLATE, timing)
    began_us = world.now_us
    world.clock.advance(us=20 * EVERY_US)  # no process runs
    put(world.other(), "s", replace(TEMPLATE, body=b"[2]"), timing)
    runs.run()
    assert runs.starts == {began_us + number * EVERY_US: 1 for number in range(1, 21)}


def test_a_removed_schedule_is_kept_until_what_a_worker_has_is_past(world: World) -> None:
    # rule Z7
    if not cases.may_be_had(world, "ahead"):
        return
    put(world.queues, "s", TEMPLATE, Timing(every_us=EVERY_US))
    world.clock.advance(us=EVERY_US - cases.BEFORE_US)
    Runs(world).have(min(jobs_of(world), key=lambda one: one.due_us), "ahead")
    scheduler.remove(world.queues, "s")
    assert definition.stored(world.store, "s") is not None
    assert scheduler.all_schedules(world.queues.engine) == []
    world.clock.advance(us=4 * EVERY_US)
    advance_all(world.queues)
    assert definition.stored(world.store, "s") is None


@given(
    some.lists(some.integers(1, 100 * SECOND_US), min_size=1, max_size=30),
    some.sampled_from(
        [Timing(every_us=SECOND_US), Timing("* * * * * *"), Timing(every_us=7 * SECOND_US)]
    ),
)
def test_steps_store_each_occurrence_once_and_leave_none_out(
    waits_us: list[int], timing: Timing
) -> None:
    # whatever a step stores, it has handled exactly that
    timing = replace(timing, catch_up="all")
    schedule, now_us = Schedule(TEMPLATE, timing, b"seed", NOW_US), NOW_US
    stored: list[int] = []
    for wait_us in waits_us:
        now_us += wait_us
        times_us, schedule = step(schedule, now_us)
        stored += times_us
        expected = takewhile(schedule.through_us.__ge__, times_after(timing, NOW_US))
        assert stored == list(expected)
        assert not stored or schedule.through_us >= now_us


def test_occurrences_that_were_stored_early_are_noted_until_they_have_passed() -> None:
    timing = Timing(every_us=SECOND_US, start_us=NOW_US)
    early_us = (NOW_US + 2 * SECOND_US, NOW_US + 500 * SECOND_US)
    schedule = replace(Schedule(TEMPLATE, timing, b"seed", NOW_US), taken_us=early_us)
    times_us, schedule = step(schedule, NOW_US)
    assert NOW_US + 2 * SECOND_US not in times_us
    assert NOW_US + SECOND_US in times_us
    assert schedule.taken_us == early_us[1:]


def test_a_schedule_that_changes_all_the_time_runs_each_occurrence_once(tmp_path: Path) -> None:
    # T8, rule Z7: with a worker that claims ahead
    app, ran = Dueline(f"sqlite:///{tmp_path / 'jobs.db'}"), Counter[datetime]()

    @app.task(name="tick")
    def tick(ctx: Context, number: int) -> None:
        ran[ctx.due] += number >= 0

    app.schedules.set("s", tick, [0], every=1)
    with app.worker():
        for number in range(1, 200):
            app.schedules.set("s", tick, [number], every=1)
            time.sleep(0.1)
            if len(ran) >= 5:
                break
    app.close()
    assert set(ran.values()) == {1}
    assert max(ran) - min(ran) == timedelta(seconds=len(ran) - 1)


OPERATIONS = {
    "put": lambda queues: put(
        queues, "s", replace(TEMPLATE, body=b"[2]"), Timing(every_us=7 * SECOND_US)
    ),
    "pause": lambda queues: scheduler.pause(queues, "s"),
    "resume": lambda queues: scheduler.resume(queues, "s"),
    "remove": lambda queues: scheduler.remove(queues, "s"),
}


@pytest.mark.parametrize("change", OPERATIONS.values(), ids=OPERATIONS)
def test_a_store_that_has_moved_takes_no_change_of_a_schedule(
    world: World, change: Callable[[Queues], object]
) -> None:
    # rule X1
    put(world.queues, "s", TEMPLATE, Timing(every_us=EVERY_US))
    before = definition.stored(world.store, "s")
    world.other().engine.catalog.features.use(f"{MOVED}sqlite:///other.db")
    with pytest.raises(StoreMoved):
        change(world.other())
    assert definition.stored(world.store, "s") == before


def test_an_occurrence_at_one_time_is_missed_once_that_has_passed() -> None:
    timing = Timing(at_us=NOW_US + 5)
    assert definition.last_times(timing, NOW_US, NOW_US + 4, 9) == []
    assert definition.last_times(timing, NOW_US, NOW_US + 5, 9) == [NOW_US + 5]
    assert definition.last_times(timing, NOW_US + 5, NOW_US + 9, 9) == []
