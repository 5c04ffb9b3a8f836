"""What a store did in the last hour, day and week (V8)."""

from pathlib import Path

import pytest

from dueline.coordination import notes
from dueline.coordination.run_times import step_of
from dueline.coordination.worker_registry import Presence, announce
from dueline.core.clock import DAY_US, SECOND_US
from dueline.foresight.rates import Counted
from dueline.foresight.trends import (
    RANGES,
    TASK_SLOTS,
    TrendRecorder,
    percentile,
    task_slots,
    trend_of,
    worker_starts,
)
from tests.harness.world import World, world_on

LATE = step_of(5 * SECOND_US)


class Leader:
    """A maintenance leader that records each minute."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.recorder = TrendRecorder()

    def minute(self, ended: int = 0, failed: int = 0, late: int = 0) -> None:
        """Let a minute pass in which attempts ended."""
        engine = self.world.queues.engine
        for part in range(4):
            self.world.clock.advance(15)
            some = Counted({0: ended - late, LATE: late}, {"t": ended}, {"t": failed})
            self.recorder.counted({"q": some} if part == 1 else {}, self.world.now_us)
        after = None
        while True:
            result = self.recorder.step(engine, after)
            if result.puts:
                assert self.world.store.commit(notes.PARTITION, result.puts)
            after = result.after
            if after is None:
                return


@pytest.fixture
def leader(tmp_path: Path) -> Leader:
    made = Leader(world_on("memory", tmp_path))
    made.minute()
    return made


def test_a_minute_says_what_ended_and_what_waits(leader: Leader) -> None:
    leader.world.put()
    leader.world.put()
    leader.world.die(leader.world.put())
    leader.minute(ended=10, failed=3, late=1)
    step = trend_of(leader.world.store, "1h")[-1]
    assert (step.ended, step.failed, step.ready, step.dead) == (10, 3, 2, 1)
    assert step.span_us == 60 * SECOND_US
    assert step.at_us == leader.world.now_us - leader.world.now_us % (60 * SECOND_US)
    assert step.latency_us(50) == 0
    assert step.latency_us(95) == pytest.approx(5e6, rel=0.25)


def test_an_empty_store_costs_nothing(leader: Leader) -> None:
    leader.minute()
    assert trend_of(leader.world.store, "1h") == []


def test_minutes_become_longer_steps_and_nothing_is_lost(leader: Leader) -> None:
    leader.world.put()
    for _ in range(60 * 26):
        leader.minute(ended=2, failed=1)
    store = leader.world.store
    for name, (_, most) in RANGES.items():
        steps = trend_of(store, name)
        times = [step.at_us for step in steps]
        assert times == sorted(set(times))
        assert len(steps) <= most + 1
    assert len(trend_of(store, "1h")) == 60
    day, week = trend_of(store, "24h"), trend_of(store, "7d")
    assert sum(step.ended for step in week) == 2 * 60 * 26
    assert sum(step.failed for step in week) == 60 * 26
    assert {step.ended for step in day[1:-1]} == {30}
    assert all(step.ready == 1 for step in week)


def test_a_time_without_a_leader_is_a_gap(leader: Leader) -> None:
    leader.minute(ended=1)
    leader.world.clock.advance(13 * 60)
    leader.minute(ended=5)  # since the last time that this process read, so not of this minute
    first, second = trend_of(leader.world.store, "1h")
    assert second.at_us - first.at_us > 13 * 60 * SECOND_US
    assert first.ended == 1
    assert second.ended <= 5


def test_another_leader_continues(leader: Leader) -> None:
    leader.world.put()
    for _ in range(20):
        leader.minute(ended=1)
    other = Leader(leader.world)
    for _ in range(20):
        other.minute(ended=1)
    day = trend_of(leader.world.store, "24h")
    assert sum(step.ended for step in day) == 40
    assert len({step.at_us for step in day}) == len(day)


def test_tasks_are_counted_for_a_day(leader: Leader) -> None:
    for _ in range(10):
        leader.minute(ended=6, failed=2)
    slots = task_slots(leader.world.store)["t"]
    assert sum(ended for ended, _ in slots.values()) >= 30
    assert all(failed * 3 == ended for ended, failed in slots.values())
    for _ in range(60 * 25):
        leader.minute(ended=1)
    assert len(task_slots(leader.world.store)["t"]) <= TASK_SLOTS
    leader.world.clock.advance(us=DAY_US + SECOND_US)
    assert task_slots(leader.world.store) == {}


def started(world: World, name: str, *tasks: str) -> None:
    """Announce a worker that has just started."""
    now_us = world.now_us
    presence = Presence(name, ("q",), tasks, 1, 0, now_us, now_us, 0)
    announce(world.store, presence, version=name.encode(), beat_every_us=3600 * SECOND_US)


def test_starts_of_workers_and_their_new_tasks_are_kept(leader: Leader) -> None:
    started(leader.world, "a", "one")
    leader.minute()
    leader.world.clock.advance(600)
    started(leader.world, "b", "one", "two")
    started(leader.world, "c", "one", "two")
    for _ in range(3):
        leader.minute()
    first, second = worker_starts(leader.world.store)
    assert (first.workers, first.new_tasks) == (1, ())
    assert (second.workers, second.new_tasks) == (2, ("two",))


def test_percentiles_of_a_histogram() -> None:
    assert percentile({}, 95) is None
    assert percentile({1: 95, 3: 5}, 95) == 1
    assert percentile({1: 94, 3: 6}, 95) == 3
