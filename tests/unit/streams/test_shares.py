"""Which shards a member of a group holds, how far groups are, and which rows they need."""

import random
from collections import Counter

import pytest

from dueline.core.clock import SECOND_US
from dueline.streams import group_health, groups
from dueline.streams.group_health import stuck_groups
from dueline.streams.groups import Lag, Member, preferred, share, too_many
from tests.harness.clocks import NOW_US
from tests.harness.stream_stage import Stage

NAMES = ["a", "b", "c", "d"]


@pytest.mark.parametrize("shards", range(10))
@pytest.mark.parametrize("count", range(1, 5))
def test_shares_add_up_to_all_shards_and_differ_by_one_at_most(count: int, shards: int) -> None:
    names = NAMES[:count]
    shares = [share(names, name, shards) for name in names]
    assert sum(shares) == shards
    assert max(shares) - min(shares) <= 1
    others = [name for name in names if name != "b"]
    assert share(others, "b", shards) == share({*others, "b"}, "b", shards)


def test_each_member_takes_shards_in_an_order_of_its_own() -> None:
    orders = [tuple(preferred(name, range(12))) for name in NAMES]
    assert [sorted(order) for order in orders] == [list(range(12))] * 4
    assert len(set(orders)) == 4
    assert preferred("a", [5, 3]) == [shard for shard in orders[0] if shard in (3, 5)]


def test_what_is_held_beyond_a_fair_share_is_named_with_its_holder() -> None:
    chance = random.Random(5)
    for _ in range(300):
        shards = range(chance.randrange(1, 9))
        live = chance.sample(NAMES, chance.randrange(4))
        held = {shard: chance.choice(NAMES) for shard in shards if chance.random() < 0.8}
        surplus = too_many(held, live, shards)
        assert surplus == sorted(surplus)
        assert len(set(surplus)) == len(surplus)
        assert all(held[shard] == holder for shard, holder in surplus)
        before, left = Counter(held.values()), Counter(held.values())
        left.subtract(holder for _, holder in surplus)
        for name in NAMES:
            fair = share(live, name, len(shards)) if name in live else 0
            assert left[name] == min(before[name], fair)
        for name in live:  # it keeps those that it takes first
            mine = [shard for shard, holder in held.items() if holder == name]
            kept = preferred(name, mine)[: left[name]]
            assert not {(shard, name) for shard in kept} & set(surplus)


def test_rows_are_needed_from_the_earliest_place_of_any_group(stage: Stage) -> None:
    orders = stage.stream(2)
    version = b"1" * 16
    assert groups.needed_us(stage.store, "orders", [0, 1]) == {}
    early, late = NOW_US - 5, NOW_US + 5
    for name, from_us in (("late", late), ("early", early), ("later", late + 1)):
        groups.register(stage.store, "orders", name, from_us=from_us, version=version)
    assert groups.needed_us(stage.store, "orders", [0, 1]) == {0: early, 1: early}
    assert groups.needed_us(stage.store, "orders", [1]) == {1: early}
    assert groups.register(stage.store, "orders", "late", from_us=1, version=version).from_us == (
        late
    )
    stage.clock.advance(1)
    event = orders.append("x", key="k")
    stage.later()
    member = stage.member(shards=2, group="early")
    member.balance()
    batch = member.poll(event.shard)
    assert batch is not None
    member.commit(batch)
    needed = {event.shard: late, 1 - event.shard: early}
    assert groups.needed_us(stage.store, "orders", [0, 1]) == needed
    groups.forget(stage.store, "orders", "late")
    groups.forget(stage.store, "orders", "later")
    needed[event.shard] = event.row.at_us
    assert groups.needed_us(stage.store, "orders", [0, 1]) == needed


def test_the_age_of_the_oldest_unread_event_counts_from_the_place_of_a_group(
    stage: Stage,
) -> None:
    orders = stage.stream(1)
    store = stage.store

    def waits_us(group: str = "g", *, ago_us: int = 0) -> int | None:
        now_us = stage.clock.wall_us() - ago_us
        return groups.waits_us(store, "orders", group, [0], now_us=now_us)

    assert waits_us() is None
    first = orders.append(1)
    stage.clock.advance(10)
    second = orders.append(2)
    stage.clock.advance(20)
    assert waits_us() == 30 * SECOND_US  # a group that never was reads from the beginning
    groups.register(store, "orders", "g", from_us=first.row.at_us + 1, version=b"1" * 16)
    assert waits_us() == 20 * SECOND_US
    assert waits_us("other") == 30 * SECOND_US
    lags = groups.lags(store, "orders", "g", [0], now_us=stage.clock.wall_us())
    assert lags == [Lag(0, 1, 20 * SECOND_US, 0, 0)]
    early = groups.lags(store, "orders", "g", [0], now_us=second.row.at_us - 1)
    assert early[0].waits_us == 0  # a producer's clock may be ahead
    groups.register(store, "orders", "h", from_us=second.row.at_us + 1, version=b"1" * 16)
    assert waits_us("h") is None
    assert groups.lags(store, "orders", "h", [0], now_us=NOW_US)[0][:3] == (0, 0, 0)


def test_the_lag_counts_up_to_a_limit(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "ROWS_COUNTED_MAX", 3)
    stage.stream(1).append_many([(number, None) for number in range(5)])
    assert stage.stream(1).lag("g")[0].rows == 3


def test_a_heartbeat_lasts_as_long_as_it_says_and_ends_with_the_member(stage: Stage) -> None:
    def names() -> list[str]:
        return [member.name for member in groups.members(stage.store, "orders", "g")]

    member = Member("m", (0, 2), stage.clock.wall_us())
    assert member.busy_us == 0
    for name in ("m", "n"):
        groups.beat(
            stage.store, "orders", "g", member if name == "m" else Member("n", (), NOW_US),
            version=b"1" * 16, ttl_us=10 * SECOND_US,
        )  # fmt: skip
    assert groups.members(stage.store, "orders", "g") == [member, Member("n", (), NOW_US)]
    assert groups.members(stage.store, "orders", "other") == []
    groups.leave(stage.store, "orders", "g", "n")
    assert names() == ["m"]
    stage.clock.advance(us=10 * SECOND_US - 1)
    assert names() == ["m"]
    stage.clock.advance(2)
    assert names() == []


LIMIT_US = 300 * SECOND_US


@pytest.mark.parametrize("over_us", [0, 1])
def test_a_group_is_late_once_an_event_waits_longer_than_allowed(
    stage: Stage, over_us: int
) -> None:
    orders = stage.stream(1)
    orders.append(1)
    groups.register(stage.store, "orders", "g", from_us=0, version=b"1" * 16)
    stage.clock.advance(us=LIMIT_US + over_us)
    checks = list(stuck_groups(stage.queues.engine, max_age_us=LIMIT_US, verdict="warning"))
    assert len(checks) == over_us
    assert all("and it has no live member" in check.finding for check in checks)
    assert all("paused" not in check.finding for check in checks)
    report = group_health.report_late_groups(stage.queues.engine, None)
    assert (report.acts, len(report.warnings), report.after) == (over_us, over_us, None)


@pytest.mark.parametrize("over_us", [0, 1])
def test_a_member_is_stuck_once_a_batch_takes_longer_than_allowed(
    stage: Stage, over_us: int
) -> None:
    stage.stream(1).append(1)
    groups.register(stage.store, "orders", "g", from_us=NOW_US + SECOND_US, version=b"1" * 16)
    stage.clock.advance(us=LIMIT_US)
    now_us = stage.clock.wall_us()
    for member in (Member("idle", (), now_us), Member("m", (0,), now_us, NOW_US - over_us)):
        groups.beat(stage.store, "orders", "g", member, version=b"1" * 16, ttl_us=LIMIT_US)
    checks = list(stuck_groups(stage.queues.engine, max_age_us=LIMIT_US, verdict="bad"))
    assert len(checks) == over_us
    assert all(check.name == "group orders/g" for check in checks)
    assert all("m has been handling one batch for 5" in check.finding for check in checks)


def test_only_a_pause_of_the_late_group_is_named(stage: Stage) -> None:
    orders = stage.stream(2)
    orders.append_many([(number, str(number)) for number in range(9)])
    for name in ("g", "h"):
        groups.register(stage.store, "orders", name, from_us=0, version=b"1" * 16)
    orders.pause(group="h")
    orders.pause(shard=1)
    stage.clock.advance(us=LIMIT_US + 1)
    checks = stuck_groups(stage.queues.engine, max_age_us=LIMIT_US, verdict="warning")
    pauses = [check.finding.partition("paused: ")[2] for check in checks]
    assert pauses == ["shard 1", "group h; shard 1"]
