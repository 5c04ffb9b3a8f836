"""Appending, reading, retention."""

from datetime import UTC, datetime, timedelta

import pytest

from dueline.core.clock import DAY_US, SECOND_US, to_datetime
from dueline.core.errors import AppendUnknown, BadInput, Conflict, StoreUnavailable
from dueline.core.queue_settings import shard_of
from dueline.core.store import Store
from dueline.core.watermark import SEALED_US
from dueline.jobs.transaction import transaction
from dueline.log.reader import GUARD_US
from dueline.streams import stream
from dueline.streams.event import Position
from tests.harness.clocks import NOW_US, HandClock
from tests.harness.stepped_store import SteppedMemoryStore
from tests.harness.stream_stage import GUARD_S, Stage, batches, values
from tests.harness.world import KINDS


def test_what_is_appended_is_read_in_order(stage: Stage) -> None:
    orders = stage.stream()
    first = orders.append({"user": 7}, key="7")
    rest = orders.append_many([({"user": n}, str(n % 5)) for n in range(100)])
    last = orders.append(None)
    stage.later()
    read = list(orders.read())
    assert {event.id for event in read} == {event.id for event in (first, *rest, last)}
    positions = [event.position for event in read]
    assert positions == sorted(positions)
    for key in ("0", "1", "4"):
        mine = [event.value for event in read if event.key == key]
        assert mine == [event.value for event in (first, *rest) if event.key == key]
        shards = {event.shard for event in read if event.key == key}
        assert shards == {shard_of(key.encode(), 3)}
    assert (last.key, last.value) == (None, None)
    assert first.at == to_datetime(NOW_US)


def test_appends_of_one_process_lie_behind_each_other(stage: Stage) -> None:
    # whatever the clock says meanwhile, and however far readers have closed
    orders = stage.stream(1)
    events = [orders.append(0)]
    for number, jump_s in enumerate((0, -5, 0, 3600, -7200, 0), start=1):
        stage.clock.jump(jump_s)
        stage.store.close_until("orders", 0, at_us=stage.clock.wall_us())
        events.append(orders.append(number))
    stage.clock.advance(3 * 3600)
    assert [event.value for event in orders.read()] == list(range(7))
    positions = [event.position for event in events]
    assert positions == sorted(set(positions))


@pytest.mark.parametrize("ahead_us", [5 * SECOND_US, SEALED_US])
def test_each_event_of_a_batch_is_where_its_shard_put_it(stage: Stage, ahead_us: int) -> None:
    """Readers have closed one of the shards further than the other, or it is sealed."""
    orders = stage.stream(2)
    orders.append(0)
    if ahead_us == SEALED_US:
        stage.stream(None).reshard(3)
    stage.store.close_until("orders", 1, at_us=min(SEALED_US, NOW_US + ahead_us))
    events = orders.append_many([(number, str(number)) for number in range(1, 9)])
    stage.clock.advance(10)
    assert {event.id: event.position for event in events} == {
        event.id: event.position for event in orders.read() if event.value
    }


def test_reading_starts_at_a_time_or_behind_a_position(stage: Stage) -> None:
    orders = stage.stream(2)
    events = []
    for number in range(10):
        events.append(orders.append(number))
        stage.clock.advance(60)
    noon = to_datetime(NOW_US) + timedelta(minutes=4)
    assert [event.value for event in orders.read(Position.at(noon))] == [4, 5, 6, 7, 8, 9]
    after = Position.parse(str(events[4].position))
    assert [event.value for event in orders.read(after)] == [5, 6, 7, 8, 9]
    each = {events[4].shard: after, 1 - events[4].shard: events[-1].position}
    assert {event.shard for event in orders.read(each)} <= {events[4].shard}
    alone = [event.value for event in orders.read(shards=[0])]
    assert alone == [event.value for event in events if event.shard == 0]
    for wrong in ("yesterday", 5):
        with pytest.raises(BadInput):
            list(orders.read(wrong))  # type: ignore[arg-type]  # that is the point
    with pytest.raises(BadInput):
        Position.parse("5")
    with pytest.raises(BadInput):
        Position.at(datetime(2026, 1, 1))  # noqa: DTZ001  that is the point
    assert Position.at(datetime(2026, 1, 1, tzinfo=UTC)) == Position(NOW_US)


def test_what_cannot_be_written_is_refused(stage: Stage) -> None:
    orders = stage.stream()
    for wrong in (object(), {1, 2} and float("nan"), "x" * 300_000):
        with pytest.raises(BadInput):
            orders.append(wrong)
    with pytest.raises(BadInput):
        stage.stream(0)
    with pytest.raises(BadInput):
        stage.stream(keep_us=0)
    stage.later()
    assert list(orders.read()) == []
    assert len(orders.append_many([])) == 0


def test_a_streams_settings_are_stored(stage: Stage) -> None:
    assert stage.stream(6).settings.shards == 6
    assert stage.stream(6, keep_us=DAY_US).settings.keep_us == DAY_US
    assert stage.stream(6).settings.keep_us == DAY_US
    with pytest.raises(Conflict, match="6 shards"):
        stage.stream(7).append(1)


def test_an_append_of_unknown_outcome_can_be_repeated(clock: HandClock) -> None:
    failing = {"mark_of": 0}

    def step(name: str) -> None:
        if failing.get(name):
            failing[name] -= 1
            raise StoreUnavailable

    stage = Stage(SteppedMemoryStore(clock, step=step), clock)
    orders = stage.stream()
    orders.append(0)
    failing["mark_of"] = 1
    with pytest.raises(AppendUnknown) as caught:
        orders.append_many([(1, "a"), (2, "a")])
    (first, second) = orders.append_again(caught.value.rows)
    stage.later()
    assert [event.value for event in orders.read()] == [0, 1, 2]
    assert (first.value, second.value) == (1, 2)


@pytest.mark.parametrize("store", KINDS, indirect=True)
def test_events_share_the_fate_of_a_transaction(stage: Stage) -> None:
    orders = stage.stream()

    def lose() -> None:
        with transaction(stage, stage.queues, stage.tasks) as tx:
            orders.append("lost", tx=tx)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        lose()
    with transaction(stage, stage.queues, stage.tasks) as tx:
        orders.append_many([("kept", None)], tx=tx)
    assert [event.value for event in orders.read()] == ["kept"]


def test_old_events_expire_but_not_before_every_group_has_read_them(stage: Stage) -> None:
    orders = stage.stream(2, keep_us=7 * DAY_US)
    old = []
    for number in range(6):
        old.append(orders.append(number).value)
        stage.clock.advance(1)
    member = stage.member(shards=2)
    member.balance()
    stage.clock.advance(us=8 * DAY_US)
    new = orders.append("new").value
    stage.later()
    orders.expire()
    assert [event.value for event in orders.read()] == [*old, new]
    member.balance()
    assert sorted(map(str, values(member))) == sorted(map(str, [*old, new]))
    orders.expire()
    kept = [event.value for event in orders.read()]
    assert new in kept  # beside the last one that the group has read in each shard
    assert len(kept) <= 3
    orders.forget_group("billing")
    orders.expire()
    assert [event.value for event in orders.read()] == [new]
    assert orders.groups() == []
    stage.stream(2).expire()


def test_a_lag_is_told_by_shard(stage: Stage) -> None:
    orders = stage.stream(2)
    orders.append_many([(number, "a") for number in range(5)])
    stage.clock.advance(30)
    shard = shard_of(b"a", 2)
    before = orders.lag("billing")[shard]
    assert (before.rows, before.waits_us, before.read) == (5, 30 * SECOND_US, 0)
    member = stage.member(shards=2, batch=3)
    member.balance()
    next(batches(member))
    assert orders.lag("billing")[shard].rows == 5
    assert len(values(member)) == 5
    after = orders.lag("billing")
    assert (after[shard].rows, after[shard].read, after[shard].epoch) == (0, 5, 1)
    assert (after[1 - shard].rows, after[1 - shard].read) == (0, 0)


def test_a_row_that_was_written_late_is_read(clock: HandClock, store: Store) -> None:
    # T12: a producer stalls for five minutes between choosing its instant and writing
    slow = Stage(store, clock)
    orders = slow.stream(1)
    late = orders.append(0)
    stalled = late.row._replace(at_us=late.row.at_us, id=b"\xff" * 16)
    member = slow.member(shards=1)
    member.balance()
    slow.later()
    assert values(member) == [0]
    clock.advance(300)
    orders.append(1)
    slow.clock.advance(GUARD_S)
    member.balance()
    assert member.held == [] or values(member) == [1]
    (again,) = orders.append_again([stalled])
    assert again.position > late.position
    slow.later()
    slow.settle_down(member, beats=2)
    assert 0 in values(member)


def test_a_row_can_be_read_at_once_where_no_mark_stays_behind_and_else_after_the_guard(
    stage: Stage,
) -> None:
    # the floor of a reader's latency is the guard, and where appends and marks exclude each
    # other there is none
    orders = stage.stream(1)
    orders.append("first")
    reader = orders.reader(0, None)
    at_once = [] if not stage.store.transactional else [1]
    assert [1 for _ in reader.read(9)] == at_once
    stage.clock.advance(us=GUARD_US - 20_000)
    assert [1 for _ in reader.read(9)] == []
    stage.clock.advance(us=40_000)
    assert len(reader.read(9)) + len(at_once) == 1


def test_shards_of_many_pages_are_read_in_the_order_of_positions(stage: Stage) -> None:
    orders = stage.stream(3)
    for number in range(0, 9000, 300):  # the first shard has far more than the others
        keys = ["a" if place % 10 else str(place) for place in range(300)]
        orders.append_many([(number + place, key) for place, key in enumerate(keys)])
        stage.clock.advance(0.1)
    stage.later()
    read = list(orders.read())
    assert sorted(event.value for event in read) == list(range(9000))
    positions = [event.position for event in read]
    assert positions == sorted(positions)
    after = read[4500].position
    assert [event.value for event in orders.read(after)] == [event.value for event in read[4501:]]


def test_a_read_that_continues_behind_the_last_event_misses_none(stage: Stage) -> None:
    # a producer in another shard is slow: its event has an instant before those that were read
    orders = stage.stream(2)
    keys = [next(str(n) for n in range(99) if shard_of(str(n).encode(), 2) == s) for s in (0, 1)]
    began = orders.append("first", key=keys[0])
    stage.clock.advance(1)
    orders.append("second", key=keys[0])
    stage.later()
    seen = list(orders.read())
    assert [event.value for event in seen] == ["first", "second"]
    slow = began.row._replace(shard=1, id=b"\7" * 16, at_us=began.row.at_us + 1)
    orders.append_again([slow])
    stage.later()
    assert [event.shard for event in orders.read(seen[-1].position)] == [1]


def test_many_events_are_appended_once_each_in_several_writes(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "CHUNK", 3)
    orders = stage.stream(1)
    appended = orders.append_many([(number, None) for number in range(8)])
    assert [event.value for event in appended] == [*range(8)]
    stage.later()
    assert [event.value for event in orders.read()] == [*range(8)]
