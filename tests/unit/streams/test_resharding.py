"""Streams between the steps of a change of their shards, and the rows of their old ones."""

from collections import Counter
from collections.abc import Collection
from dataclasses import replace

import pytest

from dueline.core.clock import DAY_US, SECOND_US
from dueline.core.queue_settings import Cut, StreamSettings
from dueline.core.watermark import SEALED_US
from dueline.streams import resharding, retention
from dueline.streams.retention import SHARDS_A_STEP, trim_streams
from dueline.streams.stream import Stream
from tests.harness.stream_stage import Stage, values

EVENTS = 24
NEW = [2, 3, 4]


def counts(stage: Stage, shards: Collection[int]) -> Counter[bytes]:
    """Count the events of shards by their bodies; what is above a seal does not count."""
    rows = [
        row
        for shard in shards
        for row in stage.store.tail("orders", shard, after=None, limit=999, until_us=SEALED_US).rows
    ]
    return Counter(row.body for row in rows)


@pytest.mark.parametrize("sealed", [[], [0], [1], [0, 1]])
def test_a_batch_is_stored_once_while_shards_are_sealed_one_by_one(
    stage: Stage, sealed: list[int]
) -> None:
    # F5
    orders = stage.stream(2)
    orders.append("first", key="0")

    def cut(present: StreamSettings) -> StreamSettings:
        return replace(present, shards=3, first=2, before=(Cut(0, 2),))

    resharding.change(stage.queues.engine, "orders", cut)
    for shard in sealed:
        stage.store.close_until("orders", shard, at_us=SEALED_US)
    orders.append_many([(number, str(number)) for number in range(EVENTS)])
    stage.later()
    old, new = counts(stage, [0, 1]), counts(stage, NEW)
    assert sum((old + new).values()) == EVENTS + 1
    assert set((old + new).values()) == {1}
    assert bool(new) == bool(sealed)
    if len(sealed) == 1:  # the other one still takes its events
        assert sum(counts(stage, {0, 1}.difference(sealed)).values()) > 2
    if len(sealed) == 2:
        assert sum(new.values()) == EVENTS


def old_cut(stage: Stage) -> Stream:
    """Return a stream with events in two old shards and in a new one."""
    orders = stage.stream(2, keep_us=DAY_US)
    orders.append_many([(number, str(number)) for number in range(EVENTS)])
    orders.reshard(1)
    orders.append("new")
    stage.later()
    return orders


def cuts(stage: Stage) -> int:
    settings = resharding.settings_of(stage.store, "orders")
    assert settings is not None
    return len(settings.before)


@pytest.mark.parametrize("is_read", [False, True])
def test_old_shards_stay_until_they_are_empty_and_read(stage: Stage, *, is_read: bool) -> None:
    old_cut(stage)
    member = stage.member(shards=None)
    member.balance()
    engine = stage.queues.engine
    resharding.drop_old_shards(engine, "orders")
    assert cuts(stage) == 1
    if is_read:
        assert len(values(member)) >= EVENTS
        resharding.drop_old_shards(engine, "orders")
        assert cuts(stage) == 1
    for shard in (0, 1):
        assert cuts(stage) == 1
        before_us = engine.time.latest_us()
        stage.store.expire("orders", shard, before_us=before_us)
        resharding.drop_old_shards(engine, "orders")
    for _ in range(3):  # a member learns that nothing is left
        values(member)
        stage.clock.advance(1)
        member.balance()
    resharding.drop_old_shards(engine, "orders")
    assert cuts(stage) == 0


def test_old_shards_stay_until_all_groups_have_read_them(stage: Stage) -> None:
    old_cut(stage)
    engine = stage.queues.engine
    members = [stage.member(shards=None, group=group) for group in ("billing", "mail")]
    for member in members:
        member.balance()
    assert len(values(members[0])) >= EVENTS
    for member in members:
        resharding.drop_old_shards(engine, "orders")
        assert cuts(stage) == 1
        for shard in (0, 1):
            stage.store.expire("orders", shard, before_us=engine.time.latest_us())
        for _ in range(3):
            values(member)
            stage.clock.advance(1)
            member.balance()
        resharding.drop_old_shards(engine, "orders")
    assert cuts(stage) == 0


def test_a_shard_that_cannot_be_sealed_yet_stays(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A transaction that appends to it is open."""
    old_cut(stage)
    engine = stage.queues.engine
    before_us = engine.time.latest_us()
    for shard in (0, 1):
        stage.store.expire("orders", shard, before_us=before_us)
    with monkeypatch.context() as patch:
        patch.setattr(stage.store, "close_until", lambda *_, **__: SEALED_US - 1)
        resharding.drop_old_shards(engine, "orders")
        assert cuts(stage) == 1
    resharding.drop_old_shards(engine, "orders")
    assert cuts(stage) == 0


def test_a_step_trims_a_bounded_number_of_shards_of_all_streams_together(stage: Stage) -> None:
    shards, names = SHARDS_A_STEP * 2 // 3, ("a", "b", "c")
    engine = stage.queues.engine
    for name in names:
        stream = Stream(lambda: engine, name, owner=stage, shards=shards, keep_us=DAY_US)
        stream.append_many([(number, str(number)) for number in range(20 * shards)])
    stage.clock.advance(us=DAY_US + 60 * SECOND_US)
    steps = [trim_streams(engine, None)]
    while (after := steps[-1].after) is not None:
        steps.append(trim_streams(engine, after))
    assert [step.acts for step in steps] == [SHARDS_A_STEP, 3 * shards - SHARDS_A_STEP]
    assert steps[0].after == f"b/{SHARDS_A_STEP - shards}"
    assert trim_streams(engine, None).acts == 0


@pytest.mark.parametrize("count", range(1, 6))
def test_streams_are_trimmed_page_by_page(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    page = 2
    monkeypatch.setattr(retention, "STREAMS_A_STEP", page)
    engine = stage.queues.engine
    for number in range(count):
        keep_us = DAY_US if number != 1 else None
        Stream(
            lambda: engine, f"s{number}", owner=stage, shards=1, keep_us=keep_us
        ).append("old")  # fmt: skip
    stage.clock.advance(us=DAY_US + 60 * SECOND_US)
    steps = [trim_streams(engine, None)]
    while (after := steps[-1].after) is not None:
        steps.append(trim_streams(engine, after))
    assert len(steps) == count // page + 1
    assert sum(step.acts for step in steps) == count - (count > 1)
