"""One run of a schedule, from a seed to a verdict.

Several processes advance one schedule under faults; workers run its jobs.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise, takewhile

from dueline.core.clock import SECOND_US
from dueline.core.errors import Conflict, StoreUnavailable
from dueline.jobs.queue import Queues
from dueline.schedules import scheduler
from dueline.schedules.schedule import (
    Overlap,
    Schedule,
    Template,
    Timing,
    job_id,
    last_times,
    times_after,
)
from simulation.data import Data, kind_of
from simulation.life import Life, lived
from simulation.people import Town
from simulation.scenario import PRIORITIES, QUEUE, TENANTS, scenario_of
from simulation.shop import FATES, TOOK_US, RunLog
from simulation.tape import Tape
from simulation.world import World

NAME = "s"
EVERY_US = (4, 2, 7)
BETWEEN_US = (1_000_000, 5_000_000, 200_000)
MANY = 1_000_000
AFTER_US = 20 * SECOND_US
"""Duration for which one process continues after the faults end."""

RECURRING_VERDICTS = ("beside its time", "left out", "overlapping")
"""Verdicts on runs of schedules only: a job without an occurrence, an occurrence without a job, a
job that overlaps the previous one although it must not."""

OVERLAPS: Sequence[Overlap] = ("allow", "skip", "replace", "wait", "allow")
"""Overlap policies; each run has one."""


class _Ledger:
    """The schedule of a run, and its occurrences."""

    def __init__(self) -> None:
        """Start empty."""
        self.seed = b""
        self.began_us = self.ended_us = 0
        self.timing = Timing()
        self.stored = self.skipped = self.through_us = self.held_us = 0


def live(
    seed: int, given: Sequence[int] | None = None, *, trace: Callable[[str], object] | None = None
) -> Life:
    """Run one seed; the same seed, or the same tape with it, gives the same run.

    Its verdicts are those of a queue's run, without "doubled" (each job is the same call), and
    RECURRING_VERDICTS.
    """
    tape = Tape(seed, given)
    scenario = scenario_of(seed, tape)
    world = World(tape, trace=trace)
    data = Data(world, kind_of(seed, is_stepped=scenario.is_stepped))
    ledger = _Ledger()
    template = Template(
        "work",
        QUEUE,
        0,
        json.dumps([1, TOOK_US[tape.pick(4)], FATES[tape.pick(len(FATES))]]).encode(),
        PRIORITIES[tape.pick(len(PRIORITIES))],
        TENANTS[tape.pick(len(TENANTS))],
    )
    every_us = EVERY_US[tape.pick(len(EVERY_US))] * SECOND_US
    timing = Timing(
        every_us=every_us,
        catch_up="all",
        catch_up_max=1000,
        overlap=OVERLAPS[seed % len(OVERLAPS)],
    )

    def begin(town: Town) -> None:
        for _ in range(1 + tape.pick(3)):
            town.start_person("scheduler", see_to_it)
        town.start_person("closer", close)
        town.look_after_workers()

    def see_to_it(_town: Town, queues: Queues) -> None:
        while not world.is_healed:
            with suppress(StoreUnavailable, Conflict):
                scheduler.put(queues, NAME, template, timing)
                scheduler.advance_all(queues)
            world.sleep(BETWEEN_US[tape.pick(len(BETWEEN_US))])

    def close(town: Town, queues: Queues) -> None:
        while not world.is_healed:
            world.sleep(SECOND_US)
        town.insist(lambda: scheduler.put(queues, NAME, template, timing))
        until_us = world.now_us + AFTER_US
        while world.now_us < until_us:
            world.sleep(SECOND_US)
            town.insist(lambda: scheduler.advance_all(queues))
        schedule = scheduler.find(queues.engine, NAME)
        ledger.seed, ledger.timing = schedule.seed, schedule.timing
        ledger.began_us = schedule.timing.start_us
        ledger.stored, ledger.skipped = schedule.stored, schedule.skipped
        ledger.through_us, ledger.held_us = schedule.through_us, schedule.held_us
        ledger.ended_us = world.now_us
        town.insist(lambda: scheduler.pause(queues, NAME))

    def judge(diary: RunLog, faults: dict[str, list[str]]) -> None:
        faults.pop("doubled", None)
        verdicts = _judged(ledger, diary)
        faults.update({verdict: told for verdict, told in verdicts.items() if told})

    return lived(world, scenario, data, begin, seed=seed, judge=judge)


def _judged(ledger: _Ledger, diary: RunLog) -> Mapping[str, list[str]]:
    """Compare jobs with occurrences."""
    if not ledger.seed:  # it did not come to its end, which is told as such
        return {}
    latest_us = ledger.ended_us + 1000 * SECOND_US
    times = takewhile(latest_us.__ge__, times_after(ledger.timing, ledger.began_us))
    schedule = Schedule(Template("", "", 0, b""), ledger.timing, ledger.seed, 0)
    named = {job_id(schedule, us).hex(): us for us in times}
    born = {event.id for event in diary.events if event.f == "enqueue"}
    begun = {event.id for event in diary.events if event.f == "start"}
    there = diary.acknowledged | begun
    if ledger.timing.overlap != "allow":
        left_out = _uncounted(ledger, len(there & set(named)))
    else:
        left_out = [
            f"{job} at {us}"
            for job, us in named.items()
            if us <= ledger.ended_us and job not in there
        ]
    return {
        "beside its time": sorted(born - set(named)),
        "left out": left_out,
        "overlapping": _overlapping(ledger, diary, [job for job in named if job in there]),
    }


def _uncounted(ledger: _Ledger, jobs: int) -> list[str]:
    """Describe occurrences that were neither stored, nor skipped, nor wait."""
    times = len(last_times(ledger.timing, ledger.began_us, ledger.through_us, MANY))
    told = (
        f"{times} times, {jobs} jobs, {ledger.stored} stored, {ledger.skipped} skipped, "
        f"waits: {ledger.held_us}"
    )
    waits = ledger.held_us > 0
    is_right = ledger.stored + ledger.skipped + waits == times and ledger.stored == jobs
    return [] if is_right else [told]


def _overlapping(ledger: _Ledger, diary: RunLog, jobs: Sequence[str]) -> list[str]:
    """Return jobs that existed before the end of the previous one."""
    if ledger.timing.overlap == "allow":
        return []
    came: dict[str, int] = {}
    ended: dict[str, int] = {}
    for place, event in enumerate(diary.events):
        if event.f == "start" or (event.f == "enqueue" and event.type == "ok"):
            came.setdefault(event.id, place)
        elif event.f == "settle":
            ended.setdefault(event.id, place)
    return [
        f"{after} after {before}"
        for before, after in pairwise(jobs)
        if ended.get(before, len(diary.events)) > came[after]
    ]
