"""A group that goes on elsewhere, by its operator's word."""

from dueline import Position
from dueline.core.clock import to_datetime
from dueline.streams.consumer import Consumer
from tests.harness.stream_stage import Stage, values

OLDEST = Position(0)


def passed(stage: Stage, member: Consumer, rounds: int = 12) -> list[object]:
    """Let a member handle all there is, then go."""
    found: list[object] = []
    for _ in range(rounds):
        member.balance()
        found += values(member)
        stage.clock.advance(1)
    member.leave()
    return found


def a_group_handles_again_what_lies_behind_a_time(stage: Stage) -> None:
    # rule L6
    orders = stage.stream()
    orders.append_many([(number, str(number)) for number in range(10)])
    stage.clock.advance(60)
    noon = to_datetime(stage.clock.wall_us())
    orders.append_many([(number, str(number)) for number in range(10, 20)])
    stage.later()
    assert sorted(passed(stage, stage.member())) == list(range(20))  # type: ignore[type-var]
    orders.seek("billing", Position.at(noon))
    assert sorted(passed(stage, stage.member())) == list(range(10, 20))  # type: ignore[type-var]
    told = orders.seek("billing", OLDEST)
    assert [(one.shard, one.place) for one in told] == [(0, (0, b"")), (1, (0, b"")), (2, (0, b""))]
    assert sorted(passed(stage, stage.member())) == list(range(20))  # type: ignore[type-var]
