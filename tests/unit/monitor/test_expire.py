"""Letting go of the old events of streams, where no consumer does."""

from collections.abc import Callable
from functools import partial

import pytest

from dueline import Position
from dueline.api.maintenance_tasks import tasks_of
from dueline.core.clock import DAY_US, SECOND_US
from dueline.core.maintenance import StepResult
from dueline.core.queue_settings import shard_of
from dueline.monitor.monitor import Monitor
from dueline.streams import groups, resharding, retention
from dueline.streams import retention as task
from dueline.streams.consumer import Consumer
from dueline.streams.retention import trim_streams
from dueline.streams.stream import Stream
from tests.harness.clocks import HandClock
from tests.harness.cluster import Cluster
from tests.harness.interleaving import Turns, every_order
from tests.harness.old_streams import OLD, fill, kept, old_stream, one_more
from tests.harness.stepped_store import SteppedMemoryStore
from tests.harness.stream_stage import Stage, values
from tests.harness.world import World

KEPT = [OLD]


def stage_of(clock: HandClock, cluster: Cluster, step: Callable[[str], None]) -> Stage:
    """Set the stage of one process, on the model without transactions."""
    stage = Stage(SteppedMemoryStore(clock, cluster=cluster, step=step), clock)
    stage.queues.engine.time.latest_us()
    return stage


def check_no_gap(stage: Stage, member: Consumer, found: list[object]) -> None:
    """Check that a member that has begun reads on without a gap, to the end."""
    for _ in range(3):
        stage.clock.advance(1)
        member.balance()
        found += values(member)
    assert found == list(range(OLD + 1 - len(found), OLD + 1))
    assert found[-1:] == KEPT


def monitor_against_a_new_group() -> int:
    """Let a group begin with the oldest event, while the monitor lets old ones go."""

    def lead(turns: Turns) -> None:
        clock, cluster = HandClock(), Cluster()
        stage, monitor = (stage_of(clock, cluster, turns.step) for _ in range(2))
        old_stream(stage)
        member = stage.member(shards=1, batch=1)
        found: list[object] = []
        turns.run(
            [
                lambda: trim_streams(monitor.queues.engine, None),
                lambda: found.extend(one_more(member)),
            ]
        )
        check_no_gap(stage, member, found)

    return every_order(lead, switches_max=2)


def monitor_against_a_seek() -> int:
    """Let an operator move a group back to the oldest event, while the monitor lets them go."""

    def lead(turns: Turns) -> None:
        clock, cluster = HandClock(), Cluster()
        stage, monitor = (stage_of(clock, cluster, turns.step) for _ in range(2))
        orders = old_stream(stage)
        member = stage.member(shards=1, batch=1)
        member.balance()
        assert len(values(member)) == OLD + 1
        member.leave()
        next_one = stage.member(shards=1, batch=1)
        found: list[object] = []

        def replay() -> None:
            orders.seek("billing", Position(0))
            found.extend(one_more(next_one))

        turns.run([lambda: trim_streams(monitor.queues.engine, None), replay])
        check_no_gap(stage, next_one, found)

    return every_order(lead, switches_max=2)


@pytest.fixture
def stage(world: World) -> Stage:
    """Set a stage on the world's store: another process, which declares the streams."""
    return Stage(world.store, world.clock)


def rounds(world: World, *, steps_max: int = 100) -> list[StepResult]:
    """Have a round of the task, step by step."""
    reports = [trim_streams(world.queues.engine, None)]
    while (after := reports[-1].after) is not None:
        assert len(reports) < steps_max
        reports.append(trim_streams(world.queues.engine, after))
    return reports


def test_old_events_go_though_no_consumer_runs_and_nobody_here_declared_the_stream(
    world: World, stage: Stage
) -> None:
    # R6, O7
    orders = stage.stream(2, keep_us=DAY_US)
    fill(orders, world.clock)
    world.clock.advance(us=DAY_US - OLD * SECOND_US)
    assert trim_streams(world.queues.engine, None) == StepResult(0)
    assert len(kept(orders)) == OLD
    world.clock.advance(us=OLD * SECOND_US)
    orders.append("young")
    stage.later()
    monitor = Monitor(
        world.queues.engine,
        "m",
        clock=world.clock,
        chance=lambda: 0.0,
        load_tasks=lambda: tasks_of(world.queues),
    )
    while monitor.step() == 0:
        """Do all chores once."""
    assert kept(orders) == ["young"]
    assert trim_streams(world.queues.engine, None) == StepResult(0)


def test_they_stay_for_ever_where_nothing_else_is_said(world: World, stage: Stage) -> None:
    orders = stage.stream(1)
    fill(orders, world.clock)
    world.clock.advance(us=3000 * DAY_US)
    assert rounds(world) == [StepResult(0)]
    assert len(kept(orders)) == OLD


def test_none_goes_that_a_group_still_needs(world: World, stage: Stage) -> None:
    # rule F4
    orders = stage.stream(1, keep_us=DAY_US)
    fill(orders, world.clock)
    member = stage.member(shards=1, batch=2)
    member.balance()
    world.clock.advance(us=2 * DAY_US)
    assert trim_streams(world.queues.engine, None).acts == 0
    member.balance()
    batch = member.poll(0)
    assert batch is not None
    member.commit(batch)
    assert trim_streams(world.queues.engine, None).acts == 1
    assert kept(orders) == [1, 2, 3]  # the last one that was read marks the place
    assert values(member) == [2, 3]
    orders.forget_group("billing")
    assert trim_streams(world.queues.engine, None).acts == 1
    assert kept(orders) == []


def test_a_step_looks_at_some_shards_and_the_next_goes_on_there(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task, "STREAMS_A_STEP", 2)
    monkeypatch.setattr(task, "SHARDS_A_STEP", 3)
    hosts = Stage(world.store, world.clock)
    streams = [
        Stream(
            lambda: hosts.queues.engine, name, owner=hosts, shards=shards, keep_us=keep_us
        )
        for name, shards, keep_us in [
            ("a", 2, DAY_US), ("b", 5, None), ("c", 5, DAY_US), ("d", 1, None), ("e", 1, DAY_US)
        ]
    ]  # fmt: skip
    for stream in streams:
        for shard in range(stream.settings.shards):
            key = next(
                f"{n}"
                for n in range(99)
                if shard_of(f"{n}".encode(), stream.settings.shards) == shard
            )
            stream.append(shard, key=key)
    world.clock.advance(us=2 * DAY_US)
    reports = rounds(world)
    assert [(one.acts, one.after) for one in reports] == [
        (2, "b"), (3, "c/3"), (3, "e"), (0, None)
    ]  # fmt: skip
    assert [len(kept(stream)) for stream in streams] == [0, 5, 0, 1, 0]


def test_a_step_takes_no_more_than_a_slice_of_a_shard(world: World, stage: Stage) -> None:
    orders = stage.stream(1, keep_us=DAY_US)
    for day in range(5):
        orders.append(day)
        world.clock.advance(us=retention.SLICE_US)
    world.clock.advance(us=DAY_US)
    report = trim_streams(world.queues.engine, None)
    assert (report.acts, report.after) == (1, "orders/0")
    assert kept(orders) == [1, 2, 3, 4]
    orders.expire()  # a consumer goes on to the end
    assert kept(orders) == []
    assert trim_streams(world.queues.engine, report.after) == StepResult(0)


def test_cuts_of_which_nothing_is_left_are_forgotten(world: World, stage: Stage) -> None:
    orders = stage.stream(2, keep_us=DAY_US)
    fill(orders, world.clock)
    orders.reshard(1)
    world.clock.advance(us=2 * DAY_US)
    rounds(world)
    assert kept(orders) == []
    assert resharding.shards_of(orders.look()) == [2]


def test_a_stream_that_is_not_there_any_more_ends_the_round(world: World) -> None:
    assert trim_streams(world.queues.engine, "gone/3") == StepResult(0)


def test_a_group_that_comes_when_that_was_said_leaves_out_what_goes(
    world: World, stage: Stage
) -> None:
    # rule F6; who said so stands still, and what it left is no lag, and is let go of by others
    orders = stage.stream(1, keep_us=DAY_US)
    fill(orders, world.clock)
    world.clock.advance(us=2 * DAY_US)
    store = world.store
    expired, store.expire = store.expire, lambda *_, **__: None  # type: ignore[method-assign]
    assert trim_streams(world.queues.engine, None).acts == 1
    store.expire = expired  # type: ignore[method-assign]
    assert len(kept(orders)) == OLD
    member = stage.member(shards=1)
    member.balance()
    assert values(member) == []
    assert [lag.rows for lag in orders.lag("billing")] == [0]
    assert trim_streams(world.queues.engine, None).acts == 1
    assert len(kept(orders)) == 1


# --- the monitor and somebody else, in every order of their steps -----------------------------


def two_monitors() -> int:
    """Let two monitors let old events go, beside a group that has read some of them."""

    def lead(turns: Turns) -> None:
        clock, cluster = HandClock(), Cluster()
        stage, *monitors = (stage_of(clock, cluster, turns.step) for _ in range(3))
        orders = old_stream(stage)
        member = stage.member(shards=1, batch=1)
        found = [*one_more(member), *one_more(member)]
        turns.run([partial(trim_streams, one.queues.engine, None) for one in monitors])
        assert kept(orders) == [1, 2, 3, 4]
        check_no_gap(stage, member, found)

    return every_order(lead, switches_max=2)


@pytest.mark.slow
@pytest.mark.memory
@pytest.mark.parametrize(
    "race", [monitor_against_a_new_group, monitor_against_a_seek, two_monitors]
)
def test_no_group_has_a_gap_in_any_order(race: Callable[[], int]) -> None:
    # rule F6
    assert race() > 20


def test_a_group_that_comes_between_keeps_what_goes_otherwise(
    world: World, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    # rule F6
    orders = stage.stream(1, keep_us=DAY_US)
    fill(orders, world.clock)
    world.clock.advance(us=2 * DAY_US)
    needed_us = groups.needed_us

    def and_one_comes(*given: object) -> object:
        monkeypatch.undo()
        found = needed_us(*given)  # type: ignore[arg-type]
        groups.register(world.store, "orders", "late", from_us=0, version=b"1" * 16)
        return found

    monkeypatch.setattr(groups, "needed_us", and_one_comes)
    assert trim_streams(world.queues.engine, None).acts == 0
    assert len(kept(orders)) == OLD
