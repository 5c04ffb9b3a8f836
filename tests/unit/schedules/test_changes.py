"""An occurrence is one job, also if its schedule changes around it."""

import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import takewhile
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as some

from dueline import Context, Dueline
from dueline.core.attempt import Outcome
from dueline.core.clock import SECOND_US
from dueline.core.errors import StoreMoved, Unknown
from dueline.core.features import MOVED
from dueline.core.job import Job
from dueline.core.store import Lease, Want
from dueline.core.store_capabilities import PREFETCH_US_MAX, SupportsPrefetch
from dueline.jobs.queue import Queues
from dueline.schedules import schedule as definition
from dueline.schedules import scheduler
from dueline.schedules.schedule import Overlap, Schedule, Timing, step, times_after
from dueline.schedules.scheduler import advance_all, put
from tests.harness.clocks import HandClock
from tests.harness.cluster import Cluster
from tests.harness.failing_store import FailingStore, Fault
from tests.harness.schedules import EVERY_US, NOW_US, TEMPLATE, found, fresh
from tests.harness.stepped_store import SteppedMemoryStore
from tests.harness.world import EVERY_KIND, LEASE_US, World, world_on

TIMING = Timing(every_us=EVERY_US)


BEFORE_US = SECOND_US // 5
"""How long before its occurrence a schedule changes."""


CALLS_MAX = 80
STEPS_MAX = 600


def _declare(queues: Queues, timing: Timing, **changes: object) -> None:
    put(queues, "s", TEMPLATE.changed(**changes), timing)


def _remove_and_set(queues: Queues, timing: Timing) -> None:
    scheduler.remove(queues, "s")
    _declare(queues, timing)


def _pause_and_resume(queues: Queues, timing: Timing) -> None:
    del timing
    scheduler.pause(queues, "s")
    scheduler.resume(queues, "s")


def _two_versions(queues: Queues, timing: Timing) -> None:
    """Declare two versions of an application in turn, as a rolling deploy does."""
    for number in range(4):
        _declare(queues, timing, body=b"[%d]" % (number % 2))


CHANGES: Mapping[str, Callable[[Queues, Timing], None]] = {
    "arguments": lambda queues, timing: _declare(queues, timing, body=b"[2]"),
    "task": lambda queues, timing: _declare(queues, timing, task="other"),
    "queue": lambda queues, timing: _declare(queues, timing, queue="q2"),
    "priority": lambda queues, timing: _declare(queues, timing, priority=7),
    "tenant": lambda queues, timing: _declare(queues, timing, tenant="acme"),
    "catch_up": lambda queues, timing: _declare(
        queues, replace(timing, start_us=_start(queues), catch_up="all")
    ),
    "overlap": lambda queues, timing: _declare(
        queues, replace(timing, start_us=_start(queues), overlap="wait")
    ),
    "other times": lambda queues, timing: _declare(
        queues, replace(timing, start_us=_start(queues), every_us=EVERY_US // 2)
    ),
    "remove and set": lambda queues, timing: _remove_and_set(
        queues, replace(timing, start_us=_start(queues))
    ),
    "pause and resume": _pause_and_resume,
    "two versions": _two_versions,
}


HAD = ("waiting", "ahead", "claimed", "done", "dead", "retried")
"""What had become of the occurrence's job when the schedule changed."""


def _start(queues: Queues) -> int:
    return scheduler.find(queues.engine, "s").timing.start_us


def jobs_of(world: World) -> list[Job]:
    """List the jobs of both queues that wait or run."""
    engine = world.queues.engine
    rows = [job for queue in ("q", "q2") for job in engine.jobs_of(queue)]
    return [job for job in rows if not job.outcome]


class Runs:
    """Starts jobs that are due, and counts the starts of each occurrence."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.starts = Counter[int]()

    def run(self) -> None:
        """Run all jobs that are due, those that were claimed as well."""
        for job in jobs_of(self.world):
            if job.at_us <= self.world.now_us:
                claimed = self.world.claim(job.id)
                self.starts[job.due_us] += not job.errors
                self.world.end(claimed, Outcome("done", self.world.now_us))

    def have(self, job: Job, had: str) -> None:
        """Let something become of a job whose time comes in a moment."""
        world = self.world
        if had == "ahead":
            assert isinstance(world.store, SupportsPrefetch)
            claimed = world.store.prefetch(
                [Want(job.lane, 1)],
                limit=1,
                until_us=world.now_us + PREFETCH_US_MAX,
                lease=Lease(world.now_us, LEASE_US, "w1", world.queues.engine.ids.token()),
            )
            assert [taken.job.id for taken in claimed.jobs] == [job.id]
            return
        world.clock.jump(BEFORE_US / SECOND_US)  # the change reads a clock that is behind
        if had == "claimed":
            world.claim(job.id, start=True)
        elif had == "done":
            self.run()
        elif had == "dead":
            world.die(job.id)
            self.starts[job.due_us] += 1
        elif had == "retried":
            world.back(world.claim(job.id, start=True), after_s=1, errors=1, error="no")
            self.starts[job.due_us] += 1
        world.clock.jump(-BEFORE_US / SECOND_US)


def may_be_had(world: World, had: str) -> bool:
    """Return whether this can become of a job in a store."""
    return had != "ahead" or isinstance(world.store, SupportsPrefetch)


def an_occurrence_is_one_job(world: World, change: str, had: str, overlap: Overlap) -> None:
    """Change a schedule in the moment before an occurrence, and let time pass."""
    # rule Z7
    runs = Runs(world)
    began_us = world.now_us
    timing = replace(TIMING, overlap=overlap)
    _declare(world.queues, timing)
    world.clock.advance(us=EVERY_US - BEFORE_US)
    job = min(jobs_of(world), key=lambda job: job.due_us)
    runs.have(job, had)
    CHANGES[change](world.other(), timing)
    advance_all(world.other())
    for _ in range(12):
        world.clock.advance(us=EVERY_US // 4)
        advance_all(world.queues)
        runs.run()
    world.clock.advance(us=LEASE_US)  # of the claim that was not ended
    runs.run()
    starts = {us: count for us, count in runs.starts.items() if us <= began_us + 3 * EVERY_US}
    if change == "other times":
        starts = {us: count for us, count in starts.items() if (us - began_us) % EVERY_US == 0}
    expected = [began_us + number * EVERY_US for number in (1, 2, 3)]
    if overlap != "allow" and had in ("ahead", "claimed", "retried"):
        expected = expected[:1]  # those after it may wait for it, or be skipped
        starts = {us: count for us, count in starts.items() if us in expected}
    if overlap == "replace" and len(expected) == 1 and not starts:
        return  # the next one has replaced it before it ran
    assert starts == dict.fromkeys(expected, 1)


@pytest.mark.slow
@pytest.mark.parametrize("had", HAD)
@pytest.mark.parametrize("change", CHANGES)
def test_an_occurrence_is_one_job_whatever_changes_just_before_it(
    world: World, change: str, had: str
) -> None:
    # T8, rule Z7
    if may_be_had(world, had):
        an_occurrence_is_one_job(world, change, had, "allow")


@pytest.mark.long
@pytest.mark.parametrize("kind", ["memory", "steps"])
@pytest.mark.parametrize("overlap", [policy for policy in get_args(Overlap) if policy != "allow"])
@pytest.mark.parametrize("had", HAD)
def test_so_it_is_where_jobs_must_not_overlap(kind: str, had: str, overlap: Overlap) -> None:
    # T10, rule Z7
    for change in CHANGES:
        world = world_on(kind, Path())
        if may_be_had(world, had):
            an_occurrence_is_one_job(world, change, had, overlap)


@pytest.mark.long
@pytest.mark.parametrize("had", HAD)
@pytest.mark.parametrize("fault", Fault)
@pytest.mark.parametrize("kind", EVERY_KIND)
def test_a_change_that_breaks_off_leaves_one_job(kind: str, fault: Fault, had: str) -> None:
    """Fail each call of a change in turn, in the moment before an occurrence."""
    # rule Z7
    for number in range(1, CALLS_MAX):
        with fresh(kind) as world:
            if not may_be_had(world, had):
                return
            runs = Runs(world)
            began_us = world.now_us
            _declare(world.queues, TIMING)
            world.clock.advance(us=EVERY_US - BEFORE_US)
            runs.have(min(jobs_of(world), key=lambda job: job.due_us), had)
            failing = FailingStore(world.store, {number: fault})
            with suppress(Unknown):
                _declare(world.other(failing), TIMING, body=b"[2]")
            advance_all(world.other())
            world.clock.advance(us=BEFORE_US)
            runs.run()
            world.clock.advance(us=LEASE_US)
            runs.run()
            due_us = began_us + EVERY_US
            assert runs.starts[due_us] == 1, f"call {number} of {failing.calls}"
        if failing.calls < number:
            return
    raise AssertionError(f"a change takes more than {CALLS_MAX} calls")


class Stopped(Exception):
    """Raised at a step of a process that stops there."""


@pytest.mark.parametrize("change", ["queue", "pause and resume"])
def test_a_process_that_stops_at_any_step_of_a_change_leaves_one_job(change: str) -> None:
    """Also within a call of a store without transactions."""
    # rules Z3 and Z7
    for number in range(1, STEPS_MAX):
        clock, cluster = HandClock(), Cluster()
        world, steps = World(SteppedMemoryStore(clock, cluster=cluster), clock), list[str]()
        runs, began_us = Runs(world), world.now_us
        _declare(world.queues, TIMING)
        world.clock.advance(us=EVERY_US - BEFORE_US)

        def stop(name: str, steps: list[str] = steps, number: int = number) -> None:
            steps.append(name)
            if len(steps) == number:
                raise Stopped

        with suppress(Stopped):
            CHANGES[change](
                world.other(SteppedMemoryStore(clock, cluster=cluster, step=stop)), TIMING
            )
        advance_all(world.other())
        if scheduler.find(world.queues.engine, "s").is_paused:
            assert not jobs_of(world)
            scheduler.resume(world.other(), "s")
        world.clock.advance(us=BEFORE_US)
        advance_all(world.other())
        runs.run()
        assert runs.starts == {began_us + EVERY_US: 1}, f"step {number}"
        if len(steps) < number:
            return
    raise AssertionError(f"a change takes more than {STEPS_MAX} steps")


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
        put(world.other(), "s", TEMPLATE.changed(body=body), timing)
        runs.run()
    assert runs.starts == {began_us + number * EVERY_US: 1 for number in (1, 2, 3)}


def test_missed_occurrences_are_made_up_for_after_a_deploy_with_other_arguments(
    world: World,
) -> None:
    timing, runs = Timing(every_us=EVERY_US, catch_up="all"), Runs(world)
    put(world.queues, "s", TEMPLATE, timing)
    began_us = world.now_us
    world.clock.advance(us=20 * EVERY_US)  # no process runs
    put(world.other(), "s", TEMPLATE.changed(body=b"[2]"), timing)
    runs.run()
    assert runs.starts == {began_us + number * EVERY_US: 1 for number in range(1, 21)}


def test_a_removed_schedule_is_kept_until_what_a_worker_has_is_past(world: World) -> None:
    # rule Z7
    if not may_be_had(world, "ahead"):
        return
    put(world.queues, "s", TEMPLATE, Timing(every_us=EVERY_US))
    world.clock.advance(us=EVERY_US - BEFORE_US)
    Runs(world).have(min(jobs_of(world), key=lambda job: job.due_us), "ahead")
    scheduler.remove(world.queues, "s")
    assert definition.stored(world.store, "s") is not None
    assert scheduler.all_schedules(world.queues.engine) == []
    world.clock.advance(us=4 * EVERY_US)
    advance_all(world.queues)
    assert definition.stored(world.store, "s") is None


@pytest.mark.slow
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


@pytest.mark.slow
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
        queues, "s", TEMPLATE.changed(body=b"[2]"), Timing(every_us=7 * SECOND_US)
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
