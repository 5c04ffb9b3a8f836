"""What became of an event of a stream, by its groups; the newest events (W9)."""

import pytest

from dueline.core.errors import BadInput
from dueline.core.store import Row
from dueline.jobs.explanation import Explanation
from dueline.streams import groups
from dueline.streams.event import Event
from dueline.streams.event_explanation import explain_event
from dueline.streams.latest import latest_events
from tests.harness.stream_stage import Stage, run, values


def explained(stage: Stage, event: Event, group: str = "billing") -> Explanation:
    engine = stage.queues.engine
    unknown = Explanation("unknown", "")
    details = explain_event(engine, "orders", event.id, lambda _: unknown)
    return next(delivery.explanation for delivery in details.deliveries if delivery.group == group)


def test_a_dead_lettered_event_names_the_command_that_has_it_handled(stage: Stage) -> None:
    orders = stage.stream(1)
    bad, next_of_key, other = orders.append_many([("bad", "b"), (1, "b"), (2, "a")])
    stage.later()
    member = stage.member(shards=1, park_after=1)
    member.balance()
    run(stage, member, {"bad"})
    assert explained(stage, other).reason == "done"
    for event in (bad, next_of_key):
        (dead,) = explained(stage, event).conditions
        assert dead.command == "dueline streams unpark orders --group billing --key b"
    orders.unpark("billing", key="b")
    run(stage, member, set())
    assert {explained(stage, event).reason for event in (bad, next_of_key)} == {"done"}


def test_what_comes_before_an_event_is_named(stage: Stage) -> None:
    orders, member = stage.stream(1), stage.member(shards=None)
    stage.settle_down(member)
    old = orders.append("old")
    orders.reshard(2)
    event = next(event for event in orders.append_many([(n, str(n)) for n in range(9)][::-1])
                 if event.shard == 1)  # fmt: skip
    conditions = explained(stage, event).conditions
    assert [condition.kind for condition in conditions] == ["waiting", "waiting"]
    assert "1 old shard(s)" in conditions[0].clause
    assert "no member" in conditions[1].clause
    holder = explained(stage, old).conditions[0]
    assert (holder.kind, holder.subject) == ("claimed", member.name)
    since_us = stage.clock.wall_us() - 60_000_000
    busy = groups.Member(member.name, (0,), stage.clock.wall_us(), since_us)
    groups.beat(stage.store, "orders", "billing", busy, version=b"1", ttl_us=8_000_000)
    assert "one batch for 1m" in explained(stage, old).sentence
    for _ in range(3):
        stage.later()
        stage.settle_down(member)
        values(member)
    assert {explained(stage, sent).reason for sent in (old, event)} == {"done"}


def test_a_group_that_began_later_and_names_that_are_none(stage: Stage) -> None:
    event = stage.stream(1).append(1)
    later_us = event.row.at_us + 1
    groups.register(stage.store, "orders", "late", from_us=later_us, version=b"1")
    assert explained(stage, event, "late").reason == "never"
    for name in ("", "x", "1-x", event.id[:-2]):
        with pytest.raises(BadInput):
            explain_event(stage.queues.engine, "orders", name, lambda _: Explanation("unknown", ""))


def test_a_subscriber_that_stands_before_many_other_topics_is_behind(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(groups, "ROWS_COUNTED_MAX", 5)
    groups.register(stage.store, "orders", "g", from_us=0, version=b"1", pattern="rare")
    orders = stage.stream(1)
    for count, behind in ((4, 0), (5, 1)):  # a live one moves past other topics
        while sum(1 for _ in orders.read()) < count:
            orders.append(1, topic="frequent")
            stage.later()
        (lag,) = orders.lag("g")
        assert lag.rows == behind
    orders.append(1, topic="rare")
    assert orders.lag("g")[0].rows == 1


@pytest.mark.parametrize("count", [1, 50, 700])
def test_the_newest_events_are_read_backwards(stage: Stage, count: int) -> None:
    now_us = stage.clock.wall_us()
    ages_us = [0, 5, 90_000_000, 7 * 86_400_000_000, *range(100_000_000, 100_001_600), *[10**9] * 9]
    rows = [
        Row("orders", number % 2, now_us - age_us, number.to_bytes(16), b'{"value":1}')
        for number, age_us in enumerate(ages_us)
    ]
    stage.store.append(rows)
    latest = latest_events(stage.store, "orders", [0, 1], count, now_us)
    wanted = sorted(rows, key=lambda row: (row.at_us, row.id), reverse=True)[:count]
    assert [event.id for event in latest] == [row.id.hex() for row in wanted]
