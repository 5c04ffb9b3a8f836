"""Groups and shards of a stream that are paused by hand (O13)."""

import pytest

from dueline.core.errors import BadInput, NotFound
from dueline.streams.group_health import stuck_groups
from tests.harness.stream_stage import Stage, values

SHARD = 1


def test_what_is_paused_waits_and_continues_where_it_stopped(stage: Stage) -> None:
    """Pause a group, then one of its shards, then that shard for all groups."""
    # rule O2
    orders = stage.stream(3)
    members = {
        group: stage.member(shards=None, group=group, batch=2) for group in ("billing", "mail")
    }

    def read() -> dict[str, list[int]]:
        stage.later()
        return {group: sorted(values(member)) for group, member in members.items()}

    def append(first: int) -> set[int]:
        """Append twelve events; return those in the shard that is paused."""
        events = orders.append_many([(first + n, str(n)) for n in range(12)])
        return {event.value for event in events if event.shard == SHARD}

    append(0)
    stage.settle_down(*members.values())
    orders.pause(group="billing")
    assert read() == {"billing": [], "mail": list(range(12))}
    assert members["billing"].held == [0, 1, 2]
    orders.resume(group="billing")
    assert read() == {"billing": list(range(12)), "mail": []}
    orders.pause(group="mail", shard=SHARD)
    in_shard = append(20)
    everything = set(range(20, 32))
    by_group = read()
    assert (set(by_group["billing"]), set(by_group["mail"])) == (everything, everything - in_shard)
    orders.pause(shard=SHARD)
    orders.resume(group="mail", shard=SHARD)
    assert read()["mail"] == []
    orders.reshard(4)  # the pause stays
    assert read()["mail"] == []
    orders.resume(shard=SHARD)
    assert set(read()["mail"]) == in_shard


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
    (check,) = stuck_groups(stage.queues.engine, max_age_us=300_000_000, verdict="warning")
    assert "paused: group billing" in check.finding


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
    assert [pause.text for pause in orders.look().paused] == ["group billing, shard 0"]


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
