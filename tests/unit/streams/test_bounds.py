"""Bounds of consumers: their options, how long failed events wait, how many keys are parked."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest

from dueline import Dueline, Position
from dueline.coordination.leases import TTL_US_MIN
from dueline.core.clock import DAY_US, SECOND_US
from dueline.core.errors import BadInput
from dueline.streams import dead_letters, retention
from dueline.streams.batch import BATCH, TTL_US, ConsumerOptions
from dueline.streams.consumer import RETRY_US_MAX, RETRY_US_MIN, _before
from dueline.streams.retention import trim_shards, trim_stream
from tests.harness.stream_stage import Stage, run

ALLOWED: list[tuple[Mapping[str, Any], ConsumerOptions, str | Position]] = [
    ({}, ConsumerOptions(BATCH, TTL_US, None), "oldest"),
    ({"batch": 1}, ConsumerOptions(1, TTL_US, None), "oldest"),
    ({"park_after": 1}, ConsumerOptions(BATCH, TTL_US, 1), "oldest"),
    ({"lease": TTL_US_MIN / SECOND_US}, ConsumerOptions(BATCH, TTL_US_MIN, None), "oldest"),
    ({"lease": timedelta(seconds=9)}, ConsumerOptions(BATCH, 9 * SECOND_US, None), "oldest"),
    ({"start": "newest"}, ConsumerOptions(), "newest"),
    ({"start": Position(5)}, ConsumerOptions(), Position(5)),
]
REFUSED: list[Mapping[str, Any]] = [
    {"batch": 0}, {"batch": True}, {"batch": 1.0}, {"park_after": 0}, {"park_after": True},
    {"park_after": 1.5}, {"lease": (TTL_US_MIN - 1) / SECOND_US}, {"start": "now"}, {"start": 5},
]  # fmt: skip


@pytest.mark.parametrize(("given", "terms", "start"), ALLOWED)
def test_options_of_a_consumer_at_their_bounds(
    given: Mapping[str, Any], terms: ConsumerOptions, start: str | Position
) -> None:
    clicks = Dueline("memory://").stream("clicks")
    clicks.consumer("g", **given)(print)
    (registered,) = clicks.consumers.values()
    assert registered == ("g", print, terms, start)


@pytest.mark.parametrize("given", REFUSED)
def test_options_of_a_consumer_beyond_their_bounds(given: Mapping[str, Any]) -> None:
    clicks = Dueline("memory://").stream("clicks")
    with pytest.raises(BadInput):
        clicks.consumer("g", **given)(print)
    assert not clicks.consumers


def test_a_failing_event_waits_exactly_its_time_and_half_a_minute_at_most(stage: Stage) -> None:
    stage.stream(1).append("bad")
    stage.later()
    member = stage.member(shards=1)
    member.balance()
    for attempt in range(1, 25):
        batch = member.poll(0)
        assert batch is not None
        assert batch.attempt == attempt
        member.fail(batch)
        waits_us = min(RETRY_US_MIN * 2**attempt, RETRY_US_MAX)
        for _ in range(waits_us // SECOND_US):  # it keeps its lease
            stage.clock.advance(1)
            member.balance()
        stage.clock.advance(us=waits_us % SECOND_US - 1)
        assert member.poll(0) is None
        stage.clock.advance(us=1)


def test_no_more_keys_are_parked_than_allowed(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead_letters, "KEYS_MAX", 2)
    orders = stage.stream(1)
    orders.append_many([(value, value) for value in ("a", "b", "c", "d")])
    stage.later()
    member = stage.member(shards=1, park_after=1)
    member.balance()
    assert run(stage, member, {"a", "b", "c"}) == []
    assert [event.value for event in orders.parked("billing")] == ["a", "b"]
    orders.unpark("billing", key="a")
    member.balance()
    assert run(stage, member, {"b", "c"}) == ["a", "d"]
    assert [event.value for event in orders.parked("billing")] == ["b", "c"]


def test_the_id_before_another_one_is_the_next_lower() -> None:
    ids = [bytes(15) + b"\x01", b"\x05" * 16, b"\x05" * 15 + b"\x00", b"\xff" * 16]
    for row_id in ids:
        before = _before(row_id)
        lower = (int.from_bytes(row_id) - 1).to_bytes(16)
        assert lower <= before < row_id


def test_rows_are_deleted_from_exactly_the_time_they_are_kept(stage: Stage) -> None:
    orders = stage.stream(1, keep_us=DAY_US)
    first = orders.append("first").row.at_us
    stage.clock.advance(us=1000)
    orders.append("second")
    stage.later()
    for us, left in ((DAY_US, ["first", "second"]), (DAY_US + 1, ["second"])):
        stage.clock.advance(us=first + us - stage.clock.wall_us())
        trim_stream(stage.queues.engine, "orders", orders.settings)
        assert [event.value for event in orders.read()] == left


def test_a_slice_of_a_shard_is_deleted_at_a_time(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "SLICE_US", 1000)
    orders = stage.stream(2)
    keys = {orders.append(number, key=str(number)).shard: str(number) for number in range(9)}
    first_us = stage.clock.wall_us()
    stage.clock.advance(us=1000)
    orders.append("later", key=keys[0])
    stage.later()
    engine, old_us = stage.queues.engine, first_us + 1001
    assert trim_shards(engine, "orders", [], old_us) == ((), ())
    assert trim_shards(engine, "orders", [0, 1], first_us) == ([], [])
    assert trim_shards(engine, "orders", [0, 1], old_us) == ([0, 1], [0, 1])
    if stage.store.transactional:
        assert [event.value for event in orders.read()] == ["later"]
    assert trim_shards(engine, "orders", [0], old_us).more == []
    assert list(orders.read(shards=[0])) == []
