"""A group that goes on elsewhere, by its operator's word."""

from collections.abc import Sequence

import pytest

from dueline import Position
from dueline.core.clock import DAY_US, SECOND_US, to_datetime
from dueline.core.errors import BadInput, Conflict, LeaseLost, NotFound
from dueline.core.store import Write
from dueline.streams import groups, resharding
from dueline.streams.consumer import Consumer
from tests.harness.stream_stage import TTL_US, Stage, run, values

OLDEST = Position(0)


def passed(stage: Stage, member: Consumer, rounds: int = 12) -> list[object]:
    """Let a member handle all there is, then go."""
    handled: list[object] = []
    for _ in range(rounds):
        member.balance()
        handled += values(member)
        stage.clock.advance(1)
    member.leave()
    return handled


def test_a_group_handles_again_what_lies_behind_a_time(stage: Stage) -> None:
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
    assert [(start.shard, start.place) for start in told] == [
        (0, (0, b"")),
        (1, (0, b"")),
        (2, (0, b"")),
    ]
    assert sorted(passed(stage, stage.member())) == list(range(20))  # type: ignore[type-var]


def test_what_lies_before_is_skipped(stage: Stage) -> None:
    orders = stage.stream(1)
    orders.append(0)
    stage.clock.advance(5)
    groups.register(stage.store, "orders", "billing", from_us=0, version=b"1" * 16)
    orders.seek("billing", Position.at(to_datetime(stage.clock.wall_us())))
    orders.append(1)
    stage.later()
    assert passed(stage, stage.member(shards=1)) == [1]


def test_a_place_ahead_or_a_group_unheard_of_is_refused(stage: Stage) -> None:
    orders = stage.stream()
    orders.append(1)
    with pytest.raises(NotFound, match="orders/billing"):
        orders.seek("billing", OLDEST)
    passed(stage, stage.member())
    with pytest.raises(BadInput, match="future"):
        orders.seek("billing", Position(stage.clock.wall_us() + 60 * SECOND_US))


def test_members_that_are_there_keep_their_place(stage: Stage) -> None:
    # rule L6
    orders = stage.stream(1)
    orders.append(1)
    stage.later()
    member = stage.member(shards=1)
    member.balance()
    with pytest.raises(Conflict, match="live members: member 1"):
        orders.seek("billing", OLDEST)
    groups.leave(stage.store, "orders", "billing", member.name)  # but not its leases
    with pytest.raises(Conflict, match="Shard 0 is held by member 1"):
        orders.seek("billing", OLDEST)
    assert values(member) == [1]


def test_one_that_stood_still_meanwhile_commits_nothing(stage: Stage) -> None:
    # rules L2 and L6
    orders = stage.stream(1)
    orders.append_many([(number, "k") for number in range(3)])
    stage.later()
    slow = stage.member(shards=1)
    slow.balance()
    batch = slow.poll(0)
    assert batch is not None
    slow.is_sure = lambda *_: True  # type: ignore[method-assign]  # its clock stood still
    stage.clock.advance(2 * TTL_US / SECOND_US)
    orders.seek("billing", OLDEST)
    with pytest.raises(LeaseLost):
        slow.commit(batch)
    assert passed(stage, stage.member(shards=1)) == [0, 1, 2]


@pytest.mark.slow
@pytest.mark.parametrize("write", range(8))
def test_who_comes_while_a_group_is_moved_reads_all_from_one_place(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, write: int
) -> None:
    # rule L6: before each write of a seek somebody begins
    orders = stage.stream(2)
    orders.append_many([(number, str(number)) for number in range(8)])
    stage.later()
    assert len(passed(stage, stage.member(shards=2))) == 8
    commit = stage.store.commit
    other = stage.member(shards=2)
    left = [write]
    handled: list[object] = []

    def with_company(partition: str, writes: Sequence[Write]) -> bool:
        left[0] -= 1
        if left[0] == -1:
            other.balance()
            handled.extend(values(other))
        return commit(partition, writes)

    monkeypatch.setattr(stage.store, "commit", with_company)
    try:
        orders.seek("billing", OLDEST)
        is_moved = True
    except Conflict:
        is_moved = False
    assert is_moved == (write > 1)  # from the second lease on nobody can come between
    handled += passed(stage, other)
    assert len(handled) == 8 * is_moved


def test_a_seek_that_is_overtaken_says_so(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    orders = stage.stream(1)
    orders.append(0)
    stage.later()
    passed(stage, stage.member(shards=1))
    places = groups.places

    def slowly(*given: object) -> object:
        stage.clock.advance(60)  # the leases of the seek lapse
        monkeypatch.setattr(groups, "places", places)
        assert passed(stage, stage.member(shards=1)) == []
        return places(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(groups, "places", slowly)
    with pytest.raises(Conflict, match="Another member took"):
        orders.seek("billing", OLDEST)
    assert passed(stage, stage.member(shards=1)) == []


def test_replayed_events_of_a_key_stay_in_order_over_cuts(stage: Stage) -> None:
    # rules F5 and L6
    orders = stage.stream(1)
    orders.append_many([(number, "k") for number in range(5)])
    orders.reshard(2)
    orders.append_many([(number, "k") for number in range(5, 8)])
    stage.later()
    idle = stage.member(shards=None)  # has seen that the old cut is read
    idle.balance()
    assert passed(stage, stage.member(shards=None)) == list(range(8))
    idle.balance()
    idle.leave()
    orders.seek("billing", OLDEST)
    handled: list[object] = []
    for _ in range(12):
        idle.balance()
        for shard in sorted(idle.held, reverse=True):
            if (batch := idle.poll(shard)) is not None:
                handled += [event.value for event in batch.events]
                idle.commit(batch)
        stage.clock.advance(1)
    assert handled == list(range(8))


def test_an_old_cut_that_is_read_stays_so_where_nothing_of_it_is_wanted(stage: Stage) -> None:
    orders = stage.stream(1, keep_us=DAY_US)
    orders.append(0, key="k")
    orders.reshard(2)
    stage.later()
    assert passed(stage, stage.member(shards=None)) == [0]
    stage.clock.advance(60)
    before = Position.at(to_datetime(stage.clock.wall_us()))
    orders.append(1, key="k")
    stage.later()
    told = orders.seek("billing", before)
    assert [start.place for start in told] == [resharding.END, *[(before.at_us, b"")] * 2]
    assert passed(stage, stage.member(shards=None)) == [1]


def test_what_is_set_aside_stays_so_and_nothing_of_its_key_is_lost(stage: Stage) -> None:
    # T14; rule L6
    orders = stage.stream(1)
    orders.append_many([(0, "k"), (1, "k"), (2, "other")])
    stage.later()
    member = stage.member(shards=1, park_after=1)
    member.balance()
    assert run(stage, member, {1}, rounds=20) == [0, 2]
    member.leave()
    orders.seek("billing", OLDEST)
    assert passed(stage, stage.member(shards=1)) == [2]
    assert [event.value for event in orders.parked("billing")] == [0, 1]
    orders.unpark("billing", key="k")
    assert passed(stage, stage.member(shards=1), rounds=20) == [0, 1]
    assert orders.parked("billing") == []
