"""Members of a group: who holds what, how far they come."""

import pytest

from dueline.core.errors import LeaseLost
from dueline.streams.consumer import Consumer
from dueline.streams.stream import Stream
from tests.harness.clocks import HandClock
from tests.harness.stream_stage import BEAT_S, TTL_US, Stage, values


def fill(stage: Stage, count: int = 60, *, shards: int = 3) -> Stream:
    """Append numbered events with a key each."""
    orders = stage.stream(shards)
    orders.append_many([(number, f"key {number}") for number in range(count)])
    stage.later()
    return orders


def owners(*members: Consumer) -> list[int]:
    """Count what each member holds; no shard is held twice."""
    held = [shard for member in members for shard in member.held]
    assert len(held) == len(set(held))
    return sorted(len(member.held) for member in members)


def a_member_reads_everything_once_and_goes_on_where_it_stopped(stage: Stage) -> None:
    orders = fill(stage)
    member = stage.member()
    member.balance()
    assert sorted(values(member)) == list(range(60))
    assert values(member) == []
    orders.append("more")
    stage.later()
    member.leave()
    after = stage.member()
    after.balance()
    assert values(after) == ["more"]
    assert orders.groups() == ["billing"]


def a_dead_members_shards_are_taken_over_within_two_leases(stage: Stage) -> None:
    # H5, H6
    fill(stage)
    alive, dead = stage.member(shards=6), stage.member(shards=6)
    stage.settle_down(alive, dead)
    assert owners(alive, dead) == [3, 3]
    died_us = stage.clock.monotonic_us()
    while len(alive.held) < 6:
        stage.clock.advance(BEAT_S)
        alive.balance()
        owners(alive, dead)
    assert stage.clock.monotonic_us() - died_us <= 2 * TTL_US
    assert sorted(values(alive)) == list(range(60))


def stale_commit(stage: Stage) -> None:
    """Let a member whose machine stood still commit after another has taken over."""
    orders = fill(stage, shards=1)
    still = HandClock(stage.clock.wall_us())
    asleep = Stage(stage.store, still).member("asleep", shards=1)
    asleep.balance()
    batch = asleep.poll(0) if stage.store.transactional else None
    if batch is None:
        still.advance(0.3)
        batch = asleep.poll(0)
    assert batch is not None
    stage.clock.advance(us=3 * TTL_US)
    fresh = stage.member("fresh", shards=1)
    fresh.balance()
    mine = fresh.poll(0)
    assert mine is not None
    assert mine.events[0].id == batch.events[0].id
    assert batch.is_held  # as far as it knows
    with pytest.raises(LeaseLost):
        asleep.commit(batch)
    assert orders.lag("billing")[0].read == 0
    fresh.commit(mine)
    asleep.balance()
    assert asleep.held == []


def a_stale_members_commit_is_refused(stage: Stage) -> None:
    # H5
    stale_commit(stage)
