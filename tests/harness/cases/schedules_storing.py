"""Each time of a schedule is one job, whatever is lost."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from dueline.core.attempt import Outcome
from dueline.core.clock import DAY_US, SECOND_US
from dueline.core.errors import Unknown
from dueline.jobs.queue import Queues
from dueline.schedules import schedule as definition
from dueline.schedules import scheduler
from dueline.schedules.schedule import Template, Timing
from dueline.schedules.scheduler import SENT_US_MAX, advance, advance_all, put
from tests.harness.failing_store import FailingStore, Fault
from tests.harness.schedules import EVERY_US, TEMPLATE, fresh, waiting
from tests.harness.world import World, world_on

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


def each_time_is_one_job_with_what_it_asks_for(world: World) -> None:
    # T8
    began_us = world.now_us
    template = Template("t", "q", 0, b'["a"]', 3, "acme", ("nightly",), 5 * SECOND_US)
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


def each_time_is_one_job(kind: str, fault: Fault) -> None:
    """Fail each call of a step in turn; run what was stored before anybody else comes by."""
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


def changes(world: World) -> list[Callable[[Queues], object]]:
    """List what people do to a schedule."""
    other = replace(TEMPLATE, body=b"[2]")
    return [
        lambda queues: put(queues, "s", other, TIMING),
        lambda queues: put(queues, "s", TEMPLATE, Timing(every_us=7 * SECOND_US)),
        lambda queues: scheduler.pause(queues, "s"),
        lambda queues: scheduler.resume(queues, "s"),
        lambda queues: scheduler.remove(queues, "s"),
    ]


def a_change_is_seen_through(kind: str, fault: Fault) -> None:
    """Fail each call of each change in turn, and let somebody else come by."""
    for place in range(CHANGES):
        for number in range(1, CALLS_MAX):
            with fresh(kind) as world:
                put(world.queues, "s", TEMPLATE, TIMING)
                failing = FailingStore(world.store, {number: fault})
                with suppress(Unknown):
                    changes(world)[place](world.other(failing))
                advance_all(world.other())
                found = definition.stored(world.store, "s")
                jobs = [(job.due_us, job.body) for job in waiting(world)]
                if found is None or found.schedule.is_paused:
                    assert jobs == []
                else:
                    now = found.schedule
                    times = expected(now.timing, world.now_us)
                    assert [us for us, _ in jobs] == [us for us in times if us <= now.through_us]
                    assert {body for _, body in jobs} == {now.template.body}
            if failing.calls < number:
                break


def expected(timing: Timing, from_us: int) -> list[int]:
    """List the times of the next minute and a half."""
    found = list[int]()
    for us in definition.times_after(timing, from_us):
        if us > from_us + 90 * SECOND_US:
            return found
        found.append(us)
    return found


def what_was_missed_runs_late_and_once(world: World) -> None:
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
    found = definition.stored(world.store, "s")
    assert found is not None
    assert found.schedule.skipped == 20 - 13


def no_birth_is_sent_again_when_its_key_may_be_forgotten() -> None:
    """Stop between the keys and the jobs, and come back half a day later."""
    world = world_on("steps", Path())
    put(world.queues, "s", TEMPLATE, TIMING)
    world.clock.advance(us=EVERY_US)
    found = None
    for number in range(1, 10):
        failing = FailingStore(world.store, {number: Fault.BEFORE})
        with suppress(Unknown):
            advance(world.other(failing), "s")
        found = definition.stored(world.store, "s")
        if found and found.schedule.births:  # their keys are written down, and they are not sent
            break
    assert found is not None
    assert found.schedule.births
    before = {job.id for job in waiting(world)}
    world.clock.advance(us=SENT_US_MAX + DAY_US)
    advance(world.queues, "s")
    lost = {definition.job_id(found.schedule, birth[0]) for birth in found.schedule.births}
    assert not lost & {job.id for job in waiting(world)}
    assert before <= {job.id for job in waiting(world)}
