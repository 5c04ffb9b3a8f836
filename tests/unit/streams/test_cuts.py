"""A stream that is cut into another number of shards while it is in use."""

import pytest

from dueline.core.clock import DAY_US, SECOND_US
from dueline.core.errors import AppendUnknown, BadInput, NotFound, StoreUnavailable
from dueline.core.store import Store
from dueline.core.watermark import SEALED_US
from dueline.jobs.transaction import transaction
from dueline.streams import groups, resharding
from dueline.streams.consumer import Consumer
from tests.harness.clocks import HandClock
from tests.harness.stepped_store import SteppedMemoryStore
from tests.harness.stream_stage import Stage, run, values
from tests.harness.world import KINDS

KEYS = 10


class Flow:
    """Numbered events of several keys, appended by two processes: one learns late of a cut."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.sent: dict[str, list[int]] = {}
        self._streams = {"a": stage.stream(1), "b": stage.stream(None)}

    def put(self, count: int = 30) -> None:
        """Append some in each process."""
        for name, stream in self._streams.items():
            for number in range(count):
                key = f"{name}{number % KEYS}"
                told = self.sent.setdefault(key, [])
                stream.append((key, len(told)), key=key)
                told.append(len(told))
        self.stage.later()


def take(stage: Stage, *members: Consumer, rounds: int = 12) -> dict[str, list[int]]:
    """Let members handle what there is; answer what came of each key, in order."""
    taken: dict[str, list[int]] = {}
    for _ in range(rounds):
        for member in members:
            member.balance()
            for key, number in values(member):
                taken.setdefault(key, []).append(number)
        stage.clock.advance(1)
    return taken


def test_nothing_is_lost_doubled_or_out_of_order_when_a_stream_is_cut_anew(stage: Stage) -> None:
    # H7: 1, then 7, then 3 shards, while two append and two consume
    flow = Flow(stage)
    flow.put()
    members = [stage.member(shards=None), stage.member(shards=None)]
    taken = take(stage, *members, rounds=2)
    for shards in (7, 3):
        flow.put(7)
        stage.stream(None).reshard(shards)
        flow.put()  # by those who do not know yet, too
        for key, numbers in take(stage, *members).items():
            taken.setdefault(key, []).extend(numbers)
    assert taken == flow.sent
    assert sorted(shard for member in members for shard in member.held) == [8, 9, 10]
    assert {len(member.held) for member in members} == {1, 2}


def test_new_shards_wait_until_the_old_ones_are_read(stage: Stage) -> None:
    orders = stage.stream(1)
    orders.append_many([(number, "k") for number in range(30)])
    orders.reshard(4)
    orders.append(30, key="k")
    stage.later()
    slow, quick = stage.member(shards=None), stage.member(shards=None)
    stage.settle_down(slow, quick, beats=4)
    (old,) = [member for member in (slow, quick) if 0 in member.held]
    new = quick if old is slow else slow
    assert values(new) == []
    first = old.poll(0)
    assert first is not None
    old.commit(first)
    assert values(new) == []
    rest = values(old)
    stage.clock.advance(1)
    rest += values(new) + values(old)
    assert rest == list(range(10, 31))


def test_an_idle_member_sees_a_cut_soon_and_without_a_beat(stage: Stage) -> None:
    orders = stage.stream(1)
    member = stage.member(shards=None)
    member.balance()
    assert not member.is_unsettled()
    orders.reshard(2)
    assert not member.is_unsettled()  # it looked a moment ago
    stage.clock.advance(0.6)
    assert member.is_unsettled()
    member.balance()
    assert member.held == [0, 1, 2]
    stage.clock.advance(0.6)
    assert not member.is_unsettled()


def test_a_shard_that_goes_away_goes_when_its_batch_is_over(stage: Stage) -> None:
    orders = stage.stream(2)
    orders.append_many([(number, str(number)) for number in range(8)])
    mine, other = stage.member("a", shards=2), stage.member("b", shards=2)
    mine.balance()
    assert mine.begin(0)
    assert mine.begin(1)
    other.balance()
    mine.balance()  # one of them is to go, and is not done
    assert len(mine.held) == 1
    assert not mine.is_unsettled()
    (left,) = {0, 1}.difference(mine.held)
    mine.end(*mine.held)
    assert not mine.is_unsettled()
    mine.end(left)
    assert mine.is_unsettled()
    other.balance()
    assert other.held == []
    stage.clock.advance(0.3)
    assert not other.is_unsettled()  # nothing is free
    mine.balance()
    assert not other.is_unsettled()  # it looked a moment ago
    stage.clock.advance(0.3)
    assert other.is_unsettled()
    other.balance()
    assert other.held == [left]
    stage.clock.advance(0.3)
    assert not other.is_unsettled()


@pytest.mark.parametrize("first", [0, 1, 2])
def test_only_the_shard_that_is_read_out_is_released(stage: Stage, first: int) -> None:
    """Whichever shard the member takes first, it keeps the leases of those that it needs."""
    names = (f"m{number}" for number in range(99))
    name = next(
        candidate for candidate in names if groups.preferred(candidate, range(3))[0] == first
    )
    orders, member = stage.stream(1), stage.member(name, shards=None)
    orders.append(0)
    member.balance()
    orders.reshard(2)
    stage.clock.advance(1)
    member.balance()
    assert member.held == [0, 1, 2]
    assert values(member) == [0]
    batch = orders.append(1)
    stage.later()
    held = member.poll(batch.shard)
    assert held is not None
    member.balance()
    assert member.held == [1, 2]
    member.commit(held)


def test_readers_and_lags_go_over_all_cuts(stage: Stage) -> None:
    orders = stage.stream(2)
    orders.append_many([(number, str(number)) for number in range(10)])
    stage.stream(None).reshard(3)
    orders.append_many([(number, str(number)) for number in range(10, 20)])
    stage.later()
    assert [event.value for event in orders.read()] == list(range(20))
    lags = orders.lag("billing")
    assert [lag.shard for lag in lags] == [0, 1, 2, 3, 4]
    assert sum(lag.rows for lag in lags) == 20  # and none that lies above a seal


def test_a_process_that_declares_the_old_number_goes_on(stage: Stage) -> None:
    stage.stream(1).append(0)
    stage.stream(None).reshard(3)
    assert stage.stream(1).settings.shards == 3
    stage.stream(1).append(1)
    stage.stream(None).reshard(3)  # nothing to do
    assert stage.stream(None).settings.first == 1


def test_a_stream_that_was_never_used_is_resharded_and_knows_it(stage: Stage) -> None:
    orders = stage.stream(1)
    orders.reshard(3)
    assert (orders.settings.first, orders.settings.shards) == (1, 3)
    orders.reshard(2)
    assert (orders.settings.first, orders.settings.shards) == (4, 2)
    assert orders.append("x").shard >= 4


def test_a_cut_into_no_shards_or_of_no_stream_is_refused(stage: Stage) -> None:
    with pytest.raises(BadInput, match=r"`shards` must be .*got 0"):
        stage.stream(1).reshard(0)
    with pytest.raises(NotFound, match="nosuch"):
        resharding.reshard(stage.queues.engine, "nosuch", 2)


def test_a_cut_is_forgotten_when_nobody_needs_it(stage: Stage) -> None:
    orders = stage.stream(2, keep_us=DAY_US)
    orders.append_many([(number, str(number)) for number in range(10)])
    orders.reshard(1)
    stage.later()
    member = stage.member(shards=None)
    for _ in range(3):
        member.balance()
        assert values(member) is not None
    stage.clock.advance(2 * DAY_US // SECOND_US)
    idle = groups.register(stage.store, "orders", "idle", from_us=0, version=b"1" * 16)
    orders.expire()
    assert resharding.shards_of(orders.look()) == [0, 1, 2]  # a group has not read them
    assert idle.from_us == 0
    orders.forget_group("idle")
    orders.expire()
    assert resharding.shards_of(orders.look()) == [2]
    orders.append("more")
    stage.later()
    member.balance()
    assert values(member) == ["more"]


@pytest.mark.parametrize("store", KINDS, indirect=True)
def test_a_transaction_appends_to_the_present_cut(stage: Stage) -> None:
    orders = stage.stream(1)
    orders.append(0)
    stage.stream(None).reshard(3)
    with transaction(stage, stage.queues, stage.tasks) as tx:
        orders.append(1, tx=tx)
    stage.later()
    (event,) = [event for event in stage.stream(None).read() if event.value == 1]
    assert event.shard >= 1


def test_an_append_of_unknown_outcome_is_repeated_in_the_present_cut(clock: HandClock) -> None:
    steps: list[str] = []

    def fail(name: str) -> None:
        steps.append(name)
        if steps.count("append") == 2 and name == "mark_of":
            raise StoreUnavailable("gone")

    store: Store = SteppedMemoryStore(clock, step=fail)
    stage = Stage(store, clock)
    orders = stage.stream(1)
    orders.append(0)
    stage.stream(None).reshard(2)
    with pytest.raises(AppendUnknown) as told:
        orders.append(1)
    (event,) = orders.append_again(told.value.rows)
    assert event.shard >= 1
    assert event.position.at_us < SEALED_US
    clock.advance(1)
    assert {event.value for event in orders.read()} == {0, 1}


def test_what_is_set_aside_stays_in_order_over_a_cut(stage: Stage) -> None:
    # T14
    orders = stage.stream(1)
    orders.append_many([(0, "k"), (1, "k"), (2, "other")])
    stage.later()
    member = stage.member(shards=None, park_after=1)
    member.balance()
    assert run(stage, member, {0}, rounds=20) == [2]
    orders.reshard(2)
    orders.append_many([(3, "k"), (4, "other")])
    stage.later()
    passed = []
    for _ in range(4):
        member.balance()
        passed += values(member)
        stage.clock.advance(1)
    assert passed == [4]
    assert [event.value for event in orders.parked("billing")] == [0, 1, 3]
    orders.unpark("billing", key="k")
    handled = []
    for _ in range(20):
        member.balance()
        handled += values(member)
        stage.clock.advance(1)
    assert handled == [0, 1, 3]
    assert orders.parked("billing") == []
    assert member.held == [1, 2]
    orders.append(5, key="k")
    stage.later()
    assert values(member) == [5]


def test_parked_events_of_before_a_cut_come_first_whoever_holds_the_new_shard(
    stage: Stage,
) -> None:
    # T14; the old cut stays as long as something is set aside in it
    orders = stage.stream(1, keep_us=DAY_US)
    orders.append_many([(0, "k"), (1, "k")])
    stage.later()
    member = stage.member(shards=None, park_after=1)
    member.balance()
    assert run(stage, member, {0}, rounds=20) == []
    orders.reshard(2)
    orders.append(2, key="k")
    stage.later()
    for _ in range(4):
        member.balance()
        assert values(member) == []
        stage.clock.advance(1)
    stage.clock.advance(2 * DAY_US // SECOND_US)
    orders.expire()
    assert resharding.shards_of(orders.look()) == [0, 1, 2]
    orders.unpark("billing", key="k")
    handled = []
    for _ in range(20):
        member.balance()
        for shard in sorted(member.held, reverse=True):
            if (batch := member.poll(shard)) is not None:
                handled += [event.value for event in batch.events]
                member.commit(batch)
        stage.clock.advance(1)
    assert handled == [0, 1, 2]
    orders.expire()
    assert resharding.shards_of(orders.look()) == [1, 2]
