"""An occurrence is one job, also if its schedule changes around it."""

from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace

from dueline.core.attempt import Outcome
from dueline.core.clock import SECOND_US
from dueline.core.errors import Unknown
from dueline.core.job import Job
from dueline.core.store import Lease, Want
from dueline.core.store_capabilities import PREFETCH_US_MAX, SupportsPrefetch
from dueline.jobs.queue import Queues
from dueline.schedules import scheduler
from dueline.schedules.schedule import Overlap, Timing
from dueline.schedules.scheduler import advance_all, put
from tests.harness.failing_store import FailingStore, Fault
from tests.harness.schedules import EVERY_US, TEMPLATE, fresh
from tests.harness.world import LEASE_US, World

TIMING = Timing(every_us=EVERY_US)
BEFORE_US = SECOND_US // 5
"""How long before its occurrence a schedule changes."""

CALLS_MAX = 80


def _declare(queues: Queues, timing: Timing, **changes: object) -> None:
    put(queues, "s", replace(TEMPLATE, **changes), timing)  # type: ignore[arg-type]


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
            assert [one.job.id for one in claimed.jobs] == [job.id]
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
    job = min(jobs_of(world), key=lambda one: one.due_us)
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


def a_change_that_breaks_off_leaves_one_job(kind: str, fault: Fault, had: str) -> None:
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
            runs.have(min(jobs_of(world), key=lambda one: one.due_us), had)
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
