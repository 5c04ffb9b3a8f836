"""Letting go of the old events of streams, where no consumer does."""

from collections.abc import Callable

from dueline import Position
from dueline.streams.consumer import Consumer
from dueline.streams.retention import trim_streams
from tests.harness.clocks import HandClock
from tests.harness.cluster import Cluster
from tests.harness.interleaving import Turns, every_order
from tests.harness.old_streams import OLD, old_stream, one_more
from tests.harness.stepped_store import SteppedMemoryStore
from tests.harness.stream_stage import Stage, values

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
