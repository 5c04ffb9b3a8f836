"""Telling of shards that are late."""

from functools import partial

import pytest

from dueline.core.engine import Engine
from dueline.core.maintenance import MaintenanceTask, StepResult
from dueline.jobs.shard_status import LATE_US
from dueline.monitor import late_shards as task
from dueline.monitor.late_shards import report_late_shards
from dueline.monitor.monitor import TTL_US, Monitor
from dueline.monitor.tasks import TASKS
from dueline.streams.group_health import report_late_groups
from tests.harness.stream_stage import Stage, values
from tests.harness.world import World


def warned(world: World) -> list[str]:
    """Have a round of the task; answer what is to be logged."""
    report = report_late_shards(world.queues.engine, None)
    words = [*report.warnings, *report_late_groups(world.queues.engine, None).warnings]
    while report.after is not None:
        report = report_late_shards(world.queues.engine, report.after)
        words += report.warnings
    return words


def test_a_late_shard_of_a_queue_that_is_served_is_told_of_and_no_other(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    # R6
    monkeypatch.setattr(task, "QUEUES_A_STEP", 1)
    for queue in ("waiting", "paused", "unserved"):
        world.put(queue=queue)
    world.queues.engine.catalog.configure("paused", is_paused=True)
    world.clock.advance(us=LATE_US + 1)
    world.put(queue="prompt")
    world.live(queues=("waiting", "paused", "prompt"))
    (words,) = warned(world)
    assert words.startswith("queue waiting, shard ")
    assert words.endswith(": its oldest ready job waits for 5m")


def test_a_group_that_reads_nothing_is_told_of_until_it_has_read(world: World) -> None:
    stage = Stage(world.store, world.clock)
    member = stage.member()
    member.balance()
    stage.stream().append("first")
    world.clock.advance(us=LATE_US)
    member.balance()
    assert warned(world) == []
    world.clock.advance(2)
    (words,) = warned(world)
    assert words == "group orders/billing: its oldest event waits for 5m2s"
    stage.settle_down(member)
    assert values(member) == ["first"]
    assert warned(world) == []


def test_who_holds_the_office_warns(world: World) -> None:
    world.put(queue="late")
    world.clock.advance(us=LATE_US + 1)
    world.live(queues=("late",))
    said: list[str] = []
    one, two = (
        Monitor(
            world.queues.engine,
            who,
            clock=world.clock,
            chance=lambda: 0.0,
            load_tasks=lambda: TASKS,
            warn=said.append,
        )
        for who in ("one", "two")
    )
    for _ in range(50):
        one.step()
        two.step()
    (words,) = said
    assert words.startswith("queue late, shard ")


def test_who_has_lost_the_office_meanwhile_warns_of_nothing(world: World) -> None:
    said: list[str] = []

    def stand_still(_engine: Engine, _after: str | None) -> StepResult:
        world.clock.advance(us=2 * TTL_US)
        while other.epoch is None:
            other.step()
        return StepResult(warnings=("too late",))

    def nothing(_engine: Engine, _after: str | None) -> StepResult:
        return StepResult()

    monitor, other = (
        Monitor(
            world.queues.engine,
            name,
            clock=world.clock,
            chance=lambda: 0.0,
            load_tasks=partial(list, [MaintenanceTask("slow", 1, step)]),
            warn=said.append,
        )
        for name, step in (("one", stand_still), ("two", nothing))
    )
    monitor.step()
    assert (monitor.epoch, other.epoch, said) == (None, 2, [])
