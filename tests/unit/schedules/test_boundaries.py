"""The exact moments at which schedules are advanced, decided, reported and deleted."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from dueline.core.call_options import CallTerms, read_options
from dueline.core.clock import SECOND_US
from dueline.core.durations import instant_text
from dueline.core.errors import NotFound
from dueline.core.job import Job
from dueline.core.lane import bucket_of, lane_tenant
from dueline.jobs.decisions import RESEND_US_MAX
from dueline.schedules import schedule as definition
from dueline.schedules import scheduler
from dueline.schedules.schedule import (
    ENDED_KEEP_US,
    LATE_US,
    PlannedJob,
    Schedule,
    Skip,
    Template,
    Timing,
)
from dueline.schedules.scheduler import (
    EVERY_US,
    SOONEST_US,
    Overdue,
    advance,
    advance_all,
    overdue,
    put,
    store_scheduled_jobs,
)
from dueline.schedules.timetable import (
    CHECK_US,
    OVERDUE_US,
    RANK_MAX,
    REST_US,
    SPARE_US,
    Timetable,
    has_remains,
)
from tests.harness.schedules import TEMPLATE, end, found, left_out, waiting
from tests.harness.world import World

STEP_US = 20 * SECOND_US


def store(world: World, schedule: Schedule, name: str = "s") -> None:
    """Write a schedule as another process left it."""
    stored = definition.stored(world.store, name)
    commit = definition.put(
        name, schedule, version=world.queues.engine.ids.token(),
        expect=stored.version if stored else b"",
    )  # fmt: skip
    assert world.store.commit(commit.partition, commit.writes)


@pytest.mark.parametrize(
    ("age_us", "is_decided"),
    [(-1, False), (0, True), (1, True), (LATE_US, True), (LATE_US + 1, False)],
)
def test_a_change_of_times_decides_the_occurrences_of_the_last_minute(
    world: World, age_us: int, *, is_decided: bool
) -> None:
    due_us = world.now_us + 2 * STEP_US
    timing = Timing(every_us=2 * STEP_US, overlap="skip", catch_up="last")
    put(world.queues, "s", TEMPLATE, replace(timing, start_us=world.now_us - 2 * STEP_US))
    world.clock.advance(us=due_us - world.now_us)
    (first,) = waiting(world)
    end(world, first)
    due_us += 2 * STEP_US
    world.clock.advance(us=due_us + age_us - world.now_us)
    put(world.queues, "s", TEMPLATE, Timing(every_us=3600 * SECOND_US))
    assert [job.due_us for job in waiting(world)] == [due_us] * is_decided


def test_a_paused_schedule_decides_nothing_when_its_times_change(world: World) -> None:
    put(world.queues, "s", TEMPLATE, Timing(every_us=STEP_US, overlap="skip", catch_up="last"))
    scheduler.pause(world.queues, "s")
    world.clock.advance(us=2 * STEP_US)
    put(world.queues, "s", TEMPLATE, Timing(every_us=3600 * SECOND_US))
    assert waiting(world) == []
    assert found(world).is_paused


def test_a_schedule_is_overdue_once_it_is_further_behind_than_allowed(world: World) -> None:
    put(world.queues, "b", TEMPLATE, Timing(every_us=STEP_US))
    put(world.queues, "a", TEMPLATE, Timing(every_us=STEP_US))
    put(world.queues, "paused", TEMPLATE, Timing(every_us=STEP_US))
    scheduler.pause(world.queues, "paused")
    due_us = definition.next_time(scheduler.find(world.queues.engine, "a"))
    assert due_us is not None
    world.clock.advance(us=due_us + 7 - world.now_us)
    assert overdue(world.queues.engine, 7) == []
    assert overdue(world.queues.engine, 6) == [Overdue("a", due_us), Overdue("b", due_us)]


@pytest.mark.parametrize(
    ("every_us", "rest_us"),
    [
        (EVERY_US // 2, None),
        (EVERY_US // 2 - SECOND_US, EVERY_US - 2 * SECOND_US),
        (SECOND_US, 2 * SECOND_US),
    ],
)
def test_the_maintenance_leader_comes_back_in_time_for_a_decision(
    world: World, every_us: int, rest_us: int | None
) -> None:
    put(world.queues, "s", TEMPLATE, Timing(every_us=every_us, overlap="skip"))
    result = store_scheduled_jobs(world.queues, None)
    assert result.after == (None if rest_us is None else "")
    assert result.rest_us == (rest_us or 0)
    world.clock.advance(us=2 * every_us)  # the job still waits
    result = store_scheduled_jobs(world.queues, None)
    assert result.rest_us >= SOONEST_US or result.after is None


def test_a_dynamic_schedule_is_deleted_a_week_after_its_last_occurrence(world: World) -> None:
    at_us = world.now_us + STEP_US
    put(world.queues, "s", TEMPLATE, Timing(at_us=at_us), is_dynamic=True)
    put(world.queues, "declared", TEMPLATE, Timing(at_us=at_us))
    put(world.queues, "endless", TEMPLATE, Timing(every_us=ENDED_KEEP_US * 9), is_dynamic=True)
    end_us = found(world).through_us + ENDED_KEEP_US
    names = []
    for us in (0, 1):
        world.clock.advance(us=end_us + us - world.now_us)
        advance_all(world.queues)
        names.append([schedule.name for schedule in scheduler.all_schedules(world.queues.engine)])
    assert names == [["declared", "endless", "s"], ["declared", "endless"]]


@pytest.mark.parametrize(("over_us", "is_sent"), [(-1, True), (0, False)])
def test_planned_jobs_are_inserted_again_for_a_day(
    world: World, over_us: int, *, is_sent: bool
) -> None:
    # rules Z2 and C5
    now_us = world.now_us
    width_us = world.queues.engine.catalog.settings("q").width_us
    planned = [PlannedJob(us, us, 0, bucket_of(us, width_us)) for us in (now_us - 5, now_us + 5)]
    timing = Timing(every_us=3600 * SECOND_US, start_us=now_us)
    store(world, Schedule(
        TEMPLATE, timing, b"seed", now_us, births=tuple(planned), sent_us=now_us,
        untold=(Skip("missed", 1, now_us - 9, now_us - 9),),
    ))  # fmt: skip
    world.clock.advance(us=RESEND_US_MAX + over_us)
    skews_us = advance(world.queues, "s")
    due = [job.due_us for job in waiting(world) if job.due_us in (now_us - 5, now_us + 5)]
    assert due == [job.nominal_us for job in planned] * is_sent
    assert len(left_out(world)) == is_sent
    assert not found(world).is_sending()
    assert found(world).sent_us == 0
    late_us = RESEND_US_MAX + over_us
    assert (skews_us[:2] == [late_us + 5, late_us - 5]) == is_sent


def test_a_job_has_all_that_its_template_says_and_a_triggered_one_too(world: World) -> None:
    template = Template(
        "t", "q", 1, b"[2]", priority=-3, tenant="acme", tags=("x", "y"), expires_us=7,
        limits=("api",), terms=CallTerms(keep_us=5), headers=(("h", "v"),),
    )  # fmt: skip
    now_us = world.now_us
    put(world.queues, "s", template, Timing(every_us=STEP_US, start_us=now_us))
    stored = waiting(world)[0]
    triggered = scheduler.trigger(world.queues, "s")
    with pytest.raises(NotFound):
        scheduler.trigger(world.queues, "other")
    assert (stored.due_us, stored.enqueued_us) == (now_us + STEP_US, now_us)
    assert (triggered.due_us, triggered.enqueued_us) == (now_us, now_us)
    assert stored.lane.bucket == bucket_of(
        stored.due_us, world.queues.engine.catalog.settings("q").width_us
    )
    for job, expires_us in ((stored, stored.due_us + 7), (triggered, None)):
        assert job[6:9] == ("t", 1, b"[2]")
        assert (job.lane.queue, job.lane.priority) == ("q", -3)
        assert job.lane.tenant == lane_tenant("acme", ["api"])
        options = read_options(job.opts)
        assert (options.tags, options.expires_us) == (("x", "y"), expires_us)
        assert options.terms == CallTerms(keep_us=5)
        assert [tuple(header) for header in options.headers] == [("h", "v")]


@pytest.mark.parametrize("times", [1, 2])
def test_skipped_occurrences_are_reported_as_one_or_as_a_period(world: World, times: int) -> None:
    world.queues.engine.catalog.configure("q", history="all")
    put(world.queues, "s", TEMPLATE, Timing(every_us=STEP_US, overlap="skip"))
    first_us = world.now_us + 2 * STEP_US
    world.clock.advance(us=(1 + times) * STEP_US)
    advance_all(world.queues)
    (row,) = left_out(world)
    last = instant_text(first_us + (times - 1) * STEP_US)
    words = last if times == 1 else f"2 times since {instant_text(first_us)}"
    assert row.error == f"overlap: {words}"
    assert row.due_us == first_us + (times - 1) * STEP_US


def test_a_changed_schedule_keeps_its_counts_and_its_pause(world: World) -> None:
    put(world.queues, "s", TEMPLATE, Timing(every_us=STEP_US))
    store(world, replace(found(world), skipped=6))
    stored, skipped = found(world).stored, found(world).skipped
    assert (stored, skipped) == (3, 6)
    scheduler.pause(world.queues, "s")
    assert put(world.queues, "s", TEMPLATE.changed(body=b"[3]"), Timing(every_us=STEP_US))
    assert (found(world).is_paused, found(world).stored, found(world).skipped) == (True, 3, 6)
    assert put(world.queues, "s", TEMPLATE, Timing(every_us=STEP_US), is_dynamic=True)
    assert found(world).is_dynamic
    assert put(world.queues, "s", TEMPLATE, Timing(every_us=STEP_US))
    assert not put(world.queues, "s", TEMPLATE, Timing(every_us=STEP_US))
    scheduler.resume(world.queues, "s")
    assert not found(world).is_paused
    assert found(world).stored == 6


def test_a_schedule_that_is_being_removed_is_none_for_its_users(world: World) -> None:
    put(world.queues, "s", TEMPLATE, Timing(every_us=STEP_US))
    store(world, replace(found(world), is_leaving=True, is_paused=True, skipped=2))
    assert scheduler.all_schedules(world.queues.engine) == []
    assert scheduler.unfinished(world.queues.engine) == []
    for act in (scheduler.pause, scheduler.resume, scheduler.remove, scheduler.trigger):
        with pytest.raises(NotFound):
            act(world.queues, "s")
    put(world.queues, "s", TEMPLATE, Timing(every_us=STEP_US))  # it is declared again
    assert not found(world).is_paused
    assert not found(world).is_leaving


@pytest.mark.parametrize(("late_us", "skews_us"), [(-5, [0]), (0, [0]), (5, [5])])
def test_the_skew_of_a_job_that_is_stored_ahead_of_its_time_is_none(
    world: World, late_us: int, skews_us: Sequence[int]
) -> None:
    at_us = world.now_us + 100
    store(world, Schedule(TEMPLATE, Timing(at_us=at_us), b"seed", at_us - 1))
    world.clock.advance(us=100 + late_us)
    assert advance(world.queues, "s") == skews_us
    (job,) = waiting(world)
    assert (job.due_us, job.pos_us) == (at_us, max(at_us, world.now_us))


# --- the workers' timetable ---------------------------------------------------------------------


def timetable_of(world: World) -> Timetable:
    """Return a timetable that knows its rank."""
    timetable = Timetable(world.queues, "w")
    timetable.step()
    return timetable


@pytest.mark.parametrize(
    ("overlap", "ahead_us"), [("allow", SPARE_US), ("skip", -OVERDUE_US), ("wait", -OVERDUE_US)]
)
def test_a_worker_advances_a_schedule_exactly_when_it_is_overdue(
    world: World, overlap: definition.Overlap, ahead_us: int
) -> None:
    # rule Z6
    every_us = 3 * 3600 * SECOND_US
    now_us = world.now_us
    timing = Timing(every_us=every_us, start_us=now_us, overlap=overlap, catch_up="all")
    store(world, Schedule(TEMPLATE, timing, b"seed", now_us))
    timetable = timetable_of(world)
    assert timetable.step().rest_us == REST_US
    when_us = now_us + every_us - ahead_us
    world.clock.advance(us=when_us - 1 - world.now_us)
    assert timetable.step().rest_us == CHECK_US
    assert waiting(world) == []
    world.clock.advance(us=1)
    for _ in range(3):  # without transactions, a job takes several writes
        timetable.step()
    assert [job.due_us for job in waiting(world)] == [now_us + every_us]


def test_a_worker_rests_until_the_first_of_all_schedules_is_overdue(world: World) -> None:
    timetable = timetable_of(world)
    for name, after_s in (("a", 9), ("b", 5), ("c", 7)):
        timing = Timing(at_us=world.now_us + after_s * SECOND_US, overlap="skip")
        store(world, Schedule(TEMPLATE, timing, b"seed", timing.at_us - 1), name)
    assert timetable.step().rest_us == 5 * SECOND_US + OVERDUE_US
    assert timetable.step().skews_us == []


def test_the_rank_of_a_worker_is_read_again_periodically(world: World) -> None:
    timetable = Timetable(world.queues, "w")
    assert timetable.step().rest_us == REST_US
    for number in range(3 * RANK_MAX):
        world.live(f"other{number}")
    put(world.queues, "s", TEMPLATE, Timing(every_us=3600 * SECOND_US))
    rests = []
    for us in (REST_US - 1, 1, 1):
        world.clock.advance(us=us)
        rests.append(timetable.step().rest_us)
    assert rests[0] == REST_US
    assert REST_US < rests[1] <= RANK_MAX * REST_US
    assert rests[2] == rests[1]
    for number in range(3 * RANK_MAX):
        world.leave(f"other{number}")
    world.clock.advance(us=REST_US)
    assert timetable.step().rest_us == REST_US


def test_the_highest_rank_is_bounded(world: World) -> None:
    timetables = [Timetable(world.queues, f"w{number}") for number in range(40)]
    for number in range(40):
        world.live(f"w{number}")
    rests = {timetable.step().rest_us // REST_US for timetable in timetables}
    assert rests == set(range(1, RANK_MAX + 1))


def test_a_worker_remembers_nothing_of_deleted_schedules(world: World) -> None:
    timetable = timetable_of(world)
    names = [f"s{number}" for number in range(3)]
    for name in names:
        timing = Timing(every_us=STEP_US, overlap="skip", start_us=world.now_us - STEP_US)
        store(world, Schedule(TEMPLATE, timing, b"seed", world.now_us - 1), name)
    world.clock.advance(us=OVERDUE_US)
    timetable.step()
    assert sorted(timetable._left) == names
    for left in (["s1", "s2"], []):
        for name in set(names).difference(left):
            stored = definition.stored(world.store, name)
            if stored is not None:
                commit = definition.remove(stored)
                assert world.store.commit(commit.partition, commit.writes)
        timetable.step()
        assert sorted(timetable._left) == left


@pytest.mark.parametrize(
    "change",
    [
        {"births": (PlannedJob(1, 2, 0, 0),)}, {"untold": (Skip("missed", 1, 2, 2),)},
        {"recalled": (b"id",), "recalled_us": (5,)}, {"ended": b"id"}, {"is_leaving": True},
        {"held_us": 5},
    ],
)  # fmt: skip
def test_whatever_a_process_leaves_unfinished_is_seen_at_once(
    world: World, change: dict[str, object]
) -> None:
    timing = Timing(every_us=9 * 3600 * SECOND_US, start_us=world.now_us, overlap="wait")
    schedule = Schedule(TEMPLATE, timing, b"seed", world.now_us)
    assert not has_remains(schedule)
    assert has_remains(replace(schedule, **change))  # type: ignore[arg-type]
    timetable = timetable_of(world)
    store(world, replace(schedule, sent_us=world.now_us, **change))  # type: ignore[arg-type]
    timetable.step()
    timetable.step()
    assert (after := definition.stored(world.store, "s")) is None or not has_remains(after.schedule)


def test_a_schedule_that_another_process_deletes_meanwhile_is_skipped(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(world.queues, "s", TEMPLATE, Timing(every_us=STEP_US, overlap="skip"))
    timetable = timetable_of(world)
    (job,) = waiting(world)
    world.clock.advance(us=3 * STEP_US)
    end(world, job)
    monkeypatch.setattr(definition, "stored", lambda *_: None)
    assert timetable.step() == (REST_US, [])


def jobs_by_time(world: World) -> list[Job]:
    """Return all rows, the earliest occurrence first."""
    return sorted(world.queues.engine.jobs_of("q"), key=lambda job: job.due_us)


def test_a_worker_that_advanced_a_schedule_is_its_leader_until_another_process_does(
    world: World,
) -> None:
    """It decides in time; a schedule that others advance gets half a second."""
    timing = Timing(every_us=STEP_US, overlap="skip", start_us=world.now_us)
    put(world.queues, "s", TEMPLATE, timing)
    timetable = timetable_of(world)

    def decided_us() -> int:
        """Return how long after its time the next occurrence is decided."""
        end(world, jobs_by_time(world)[0])
        due_us = definition.next_time(found(world))
        assert due_us is not None
        world.clock.advance(us=due_us - world.now_us)
        while not waiting(world):
            timetable.step()
            if not waiting(world):
                world.clock.advance(us=OVERDUE_US)
        return world.now_us - due_us

    world.clock.advance(us=STEP_US)
    assert decided_us() == OVERDUE_US
    assert decided_us() == 0
    put(world.queues, "other", TEMPLATE, Timing(every_us=9 * 3600 * SECOND_US, overlap="skip"))
    assert decided_us() == 0  # what happens to another schedule does not matter
    store(world, replace(found(world), skipped=1))  # another process changes it
    assert decided_us() == OVERDUE_US
    assert decided_us() == 0
