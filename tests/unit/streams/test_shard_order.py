"""How often a member reads the settings and the progress of a group, and what it sees then."""

from dataclasses import replace

import pytest

from dueline.core.queue_settings import Cut, StreamPause, StreamSettings, shard_of
from dueline.core.watermark import SEALED_US
from dueline.log import checkpoint
from dueline.log.checkpoint import Checkpoint
from dueline.streams import dead_letters, groups, resharding
from dueline.streams.consumer import Consumer
from dueline.streams.dead_letters import Note
from dueline.streams.pauses import is_paused
from dueline.streams.shard_order import BEGIN_US, RESHARD_CHECK_US, ShardOrder
from dueline.streams.trial import begun
from tests.harness.stream_stage import Stage

CUTS = StreamSettings(2, first=5, before=(Cut(0, 2), Cut(2, 3)))
"""Resharded twice: shards 0 and 1, then 2 to 4, and now 5 and 6."""

PLAIN = StreamSettings(2)


class Reads:
    """The settings of a stream, and how often they were read."""

    def __init__(self) -> None:
        self.settings = PLAIN
        self.count = 0

    def __call__(self) -> StreamSettings:
        self.count += 1
        return self.settings


@pytest.fixture
def reads() -> Reads:
    return Reads()


@pytest.fixture
def order(stage: Stage, reads: Reads) -> ShardOrder:
    return ShardOrder(stage.store, "orders", "billing", settings=reads, clock=stage.clock)


def put_place(stage: Stage, shard: int, place: tuple[int, bytes] | None, note: Note) -> None:
    """Write the checkpoint of a shard."""
    at = groups.checkpoints_at("orders", "billing")
    present = checkpoint.open_under(
        stage.store, at, str(shard), epoch=1, version=stage.queues.engine.ids.token()
    )
    assert present is not None
    token = stage.queues.engine.ids.token()
    wanted = present._replace(place=place, version=token, note=dead_letters.write_note(note))
    assert checkpoint.write(stage.store, present, wanted)


def test_settings_are_read_again_after_a_quarter_of_a_second(
    stage: Stage, order: ShardOrder, reads: Reads
) -> None:
    assert not order.shards
    stage.clock.advance(60)
    order.look()
    assert (reads.count, order.shards) == (1, [0, 1])
    for us, count in ((0, 1), (RESHARD_CHECK_US - 1, 1), (1, 2), (RESHARD_CHECK_US - 1, 2), (1, 3)):
        stage.clock.advance(us=us)
        assert not order.is_changed()
        assert not order.is_paused(0)
        assert reads.count == count
    reads.settings = replace(PLAIN, paused=(StreamPause("billing", None),))
    assert not order.is_paused(0)
    stage.clock.advance(us=RESHARD_CHECK_US)
    assert order.is_paused(0)
    assert order.is_changed()
    assert order.is_changed()  # also when it read them before
    order.look()
    assert not order.is_changed()
    assert order.is_paused(0)


def test_a_member_that_has_just_started_checks_at_once(order: ShardOrder, reads: Reads) -> None:
    reads.settings = CUTS
    assert order.is_changed()


@pytest.mark.parametrize(
    ("group", "shard", "paused"),
    [(None, 1, [False, True]), ("billing", None, [True, True]), ("billing", 0, [True, False]),
     ("mail", None, [False, False]), ("mail", 0, [False, False])],
)  # fmt: skip
def test_a_pause_holds_for_the_group_and_the_shard_that_it_names(
    group: str | None, shard: int | None, paused: list[bool]
) -> None:
    settings = replace(PLAIN, paused=(StreamPause("other", 0), StreamPause(group, shard)))
    assert [is_paused(settings, "billing", shard) for shard in (0, 1)] == paused


def test_each_shard_comes_after_all_those_of_earlier_cuts() -> None:
    assert resharding.shards_of(CUTS) == list(range(7))
    before = [resharding.before(CUTS, shard) for shard in range(7)]
    assert before == [[]] * 2 + [[0, 1]] * 3 + [[0, 1, 2, 3, 4]] * 2
    assert [resharding.is_old(CUTS, shard) for shard in range(7)] == [True] * 5 + [False] * 2
    assert resharding.before(PLAIN, 1) == []
    assert not resharding.is_old(PLAIN, 0)


def test_a_shard_is_read_out_at_its_seal_and_over_once_nothing_is_parked() -> None:
    last = Checkpoint("p", "0")._replace(place=(SEALED_US - 1, b"\xff"))
    end = last._replace(place=resharding.END)
    parked = end._replace(note=dead_letters.write_note(Note({"key k": (1, "")})))
    states = [None, Checkpoint("p", "0"), last, end, parked]
    assert [resharding.is_read_out(state) for state in states] == [False, False, False, True, True]
    assert [resharding.is_over(state) for state in states] == [False, False, False, True, False]


def test_a_new_shard_begins_once_the_group_has_read_the_earlier_ones(
    stage: Stage, order: ShardOrder, reads: Reads, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads.settings = CUTS
    for shard in (0, 1):
        put_place(stage, shard, resharding.END, Note())
    put_place(stage, 2, (7, b""), Note())
    order.look()
    assert order.shards == [2, 3, 4, 5, 6]  # nothing is left in the others
    asked: list[str] = []
    places = groups.places

    def count(*given: str) -> object:
        asked.append(given[-1])
        return places(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(groups, "places", count)
    assert order.may_begin(0)
    assert order.may_begin(3)
    assert asked == []  # it is known
    assert not order.may_begin(5)
    assert asked == ["billing"]
    for shard in (2, 3, 4):
        put_place(stage, shard, resharding.END, Note())
    for us, may_begin, count_then in ((0, False, 1), (BEGIN_US - 1, False, 1), (1, True, 2)):
        stage.clock.advance(us=us)
        assert order.may_begin(6) == may_begin
        assert len(asked) == count_then
    assert order.is_read_out(4)
    assert not order.is_read_out(5)
    order.end(5)
    assert order.is_read_out(5)


def test_a_new_shard_begins_with_the_parked_keys_of_the_old_ones(
    stage: Stage, order: ShardOrder, reads: Reads
) -> None:
    keys = {shard: next(f"k{n}" for n in range(99) if own_shard(f"k{n}") == shard)
            for shard in (5, 6)}  # fmt: skip
    parked = Note({f"key {keys[5]}": (3, "01"), f"key {keys[6]}": (4, ""), "event 07": (5, "")})
    put_place(stage, 0, resharding.END, parked)
    put_place(stage, 3, (7, b""), Note())
    put_place(stage, 4, resharding.END, Note({"key other": (1, "")}))
    fresh = Checkpoint(groups.checkpoints_at("orders", "billing"), "5")
    order.look()  # without cuts
    assert order.note(5, fresh) == Note()
    reads.settings = CUTS
    order.look()
    inherited = {f"key {keys[5]}": (0, "")}
    if own_shard("other") == 5:
        inherited["key other"] = (0, "")
    trial = begun(None, (1, b""), (1, b""), epoch=1)
    assert order.note(5, fresh) == Note(inherited)
    own = dead_letters.write_note(Note({"key own": (9, "")}, trial))
    assert order.note(5, fresh._replace(note=own)) == Note(inherited, trial)
    begun_shard = fresh._replace(place=(8, b""), note=own)
    assert order.note(5, begun_shard) == Note({"key own": (9, "")}, trial)
    # what is parked of a key in an old shard comes first
    assert [order.waits(shard, f"key {keys[5]}") for shard in (0, 3, 5)] == [False, True, True]
    assert not order.waits(5, "key none")
    goes_on = [(0, f"key {keys[5]}"), (0, "event 07"), (5, f"key {keys[5]}")]
    assert [order.goes_on(*case) for case in goes_on] == [True, False, False]


def own_shard(key: str) -> int:
    return CUTS.first + shard_of(key.encode(), CUTS.shards)


def test_a_member_looks_for_free_shards_four_times_a_second(stage: Stage) -> None:
    stage.stream(2).append(1)
    mine, other = stage.member("a", shards=2), stage.member("b", shards=2)
    other.balance()
    mine.balance()
    assert mine.held == []
    stage.clock.advance(us=RESHARD_CHECK_US)
    assert not mine.is_unsettled()  # all are held
    other.leave()
    assert not mine.is_unsettled()
    stage.clock.advance(us=RESHARD_CHECK_US - 1)
    assert not mine.is_unsettled()
    stage.clock.advance(us=1)
    assert mine.is_unsettled()
    assert not mine.is_unsettled()  # it looked a moment ago


def test_one_free_shard_of_many_is_enough(stage: Stage) -> None:
    stage.stream(2).append(1)
    mine, other = stage.member("a", shards=2), stage.member("b", shards=2)
    other.balance()
    mine.balance()
    other._leases.release(["1"])
    stage.clock.advance(us=RESHARD_CHECK_US)
    assert mine.is_unsettled()


def test_a_busy_or_leaving_shard_is_not_begun(stage: Stage) -> None:
    member: Consumer = stage.member(shards=2)
    member.balance()
    assert [member.begin(0), member.begin(0), member.begin(1)] == [True, False, True]
    member.end(0)
    assert member.begin(0)
    with member._lock:
        member._leaving.add(1)
    member.end(1)
    assert not member.begin(1)
    assert member.is_unsettled()  # it is idle now, and can be released
