"""Schedules that no monitor advances."""

from dueline.core.clock import SECOND_US
from dueline.core.job import Job
from dueline.schedules import scheduler
from dueline.schedules.schedule import Overlap, Template, Timing
from dueline.schedules.timetable import Timetable
from tests.harness.queues import queues_on
from tests.harness.world import World

TEMPLATE = Template("t", "q", 0, b"[1]")


GAP_S_MAX = 3


def jobs_of(world: World) -> list[Job]:
    return sorted(world.queues.engine.jobs_of("q"), key=lambda one: one.due_us)


def engines(world: World, count: int) -> list[Timetable]:
    """Make the timetables of so many workers that live."""
    made = []
    for number in range(count):
        world.live(f"w{number}")
        queues = queues_on(world.store, world.clock)
        made.append(Timetable(queues, f"w{number}"))
    return made


class Town:
    """Workers that check schedules on one clock, each at its time."""

    def __init__(self, world: World, timetables: list[Timetable]) -> None:
        self.world = world
        self.checks = 0
        self._at_us = [(world.now_us, one) for one in timetables]

    def run(self, span_s: float) -> None:
        """Let so much time pass."""
        end_us = self.world.now_us + round(span_s * SECOND_US)
        while True:
            at_us, timetable = min(self._at_us, key=lambda one: one[0])
            if at_us > end_us:
                break
            self.world.clock.advance(us=max(0, at_us - self.world.now_us))
            self._at_us.remove((at_us, timetable))
            self._at_us.append((self.world.now_us + timetable.step().rest_us, timetable))
            self.checks += 1
        self.world.clock.advance(us=end_us - self.world.now_us)


def finish(world: World) -> None:
    for job in jobs_of(world):
        if job.at_us <= world.now_us:
            world.queues.cancel(job.id)


def without_any_monitor_no_time_is_decided_late(world: World, overlap: Overlap) -> None:
    # rule Z6
    scheduler.put(world.queues, "s", TEMPLATE, Timing(every_us=SECOND_US, overlap=overlap))
    town = Town(world, engines(world, 3))
    for _ in range(600):
        town.run(0.25)
        late_s = [(world.now_us - one.due_us) / SECOND_US for one in jobs_of(world)]
        assert all(late < GAP_S_MAX for late in late_s), late_s
        finish(world)
    stored = scheduler.find(world.queues.engine, "s").stored
    assert stored > 50
