"""Groups and shards of a stream that are paused by hand."""

import pytest

from dueline.core.errors import BadInput, NotFound
from dueline.streams.group_health import stuck_groups
from tests.harness.cases import streams_pauses as cases
from tests.harness.stream_stage import Stage


def test_what_is_paused_waits_and_continues_where_it_stopped(stage: Stage) -> None:
    # rule O2
    cases.what_is_paused_waits_and_continues_where_it_stopped(stage)


def test_a_pause_is_noticed_between_two_batches(stage: Stage) -> None:
    """No heartbeat and no new look at the shards is needed."""
    orders, member = stage.stream(1), stage.member(shards=None, batch=1)
    orders.append_many([(n, None) for n in range(3)])
    stage.settle_down(member)
    first = member.poll(0)
    assert first is not None
    orders.pause(group="billing")
    stage.clock.advance(0.3)
    member.commit(first)
    assert member.poll(0) is None
    assert member.is_unsettled()


def test_a_late_group_that_is_paused_is_named_so(stage: Stage) -> None:
    orders, member = stage.stream(1), stage.member(shards=None)
    orders.append(1)
    stage.settle_down(member)
    orders.pause(group="billing")
    stage.clock.advance(1000)
    (found,) = stuck_groups(stage.queues.engine, max_age_us=300_000_000, verdict="warning")
    assert "paused: group billing" in found.finding


def test_only_what_there_is_can_be_paused(stage: Stage) -> None:
    orders, member = stage.stream(2), stage.member(shards=None)
    with pytest.raises(NotFound):
        orders.pause(group="billing")
    orders.append(1)
    stage.settle_down(member)
    with pytest.raises(BadInput):
        orders.pause()
    with pytest.raises(NotFound):
        orders.pause(group="billin")
    with pytest.raises(NotFound):
        orders.pause(shard=2)
    orders.resume(shard=1)  # which changes nothing
    assert orders.look().paused == ()
    orders.pause(group="billing", shard=0)
    assert [one.text for one in orders.look().paused] == ["group billing, shard 0"]


def test_as_many_parts_are_paused_as_is_allowed(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dueline.streams.pauses.PAUSES_MAX", 2)
    orders = stage.stream(3)
    orders.append_many([(number, str(number)) for number in range(9)])
    for shard in (0, 1, 1):
        orders.pause(shard=shard)
    with pytest.raises(BadInput, match="At most 2"):
        orders.pause(shard=2)
    orders.resume(shard=0)
    orders.pause(shard=2)
