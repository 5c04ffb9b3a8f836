"""Events that keep failing."""

from typing import Any

from dueline import parking
from dueline.consumer import Consumer
from tests.streams.stage import Stage


def run(stage: Stage, member: Consumer, bad: set[Any], *, rounds: int = 60) -> list[Any]:
    """Handle what comes, but for values that fail; answer what was handled, in order."""
    handled: list[Any] = []
    for _ in range(rounds):
        batch = member.poll(0)
        if batch is None:
            stage.clock.advance(2)
            member.balance()
            continue
        if any(event.value in bad for event in batch.events):
            member.fail(batch)
        else:
            handled += [event.value for event in batch.events]
            member.commit(batch)
    return handled


def put(stage: Stage, *pairs: tuple[Any, str | None]) -> None:
    """Append events with their keys."""
    stage.stream(1).append_many(pairs)
    stage.later()


def test_a_failing_event_is_tried_again_one_by_one(stage: Stage) -> None:
    put(stage, *((number, "k") for number in range(5)))
    member = stage.member(shards=1)
    member.balance()
    first = member.poll(0)
    assert first is not None
    assert not member.fail(first)
    alone = []
    for _ in range(5):
        batch = member.poll(0)
        assert batch is not None
        alone.append([event.value for event in batch.events])
        member.commit(batch)
    assert alone == [[0], [1], [2], [3], [4]]
    put(stage, (5, "k"), (6, "k"))
    whole = member.poll(0)
    assert whole is not None
    assert len(whole.events) == 2


def test_a_failing_event_waits_longer_each_time(stage: Stage) -> None:
    put(stage, (0, "k"))
    member = stage.member(shards=1)
    member.balance()
    waits = []
    for attempt in range(1, 8):
        batch = member.poll(0)
        assert batch is not None
        assert batch.attempt == attempt
        member.fail(batch)
        waited = 0.0
        while member.poll(0) is None:
            stage.clock.advance(0.1)
            waited += 0.1
            member.balance()
        waits.append(round(waited, 1))
    assert waits == [0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8]


def test_without_a_limit_the_shard_waits(stage: Stage) -> None:
    put(stage, (0, "a"), ("bad", "b"), (2, "c"))
    member = stage.member(shards=1)
    member.balance()
    assert run(stage, member, {"bad"}) == [0]


def test_an_event_that_keeps_failing_is_set_aside_with_its_key(stage: Stage) -> None:
    # T14: the others go on, and the order of each key holds
    pairs = [(1, "a"), ("bad", "b"), (2, "a"), (3, "b"), (4, None), (5, "b"), (6, "c")]
    put(stage, *pairs)
    member = stage.member(shards=1, park_after=3)
    member.balance()
    assert run(stage, member, {"bad"}) == [1, 2, 4, 6]
    put(stage, (7, "b"), (8, "a"))
    assert run(stage, member, {"bad"}) == [8]
    orders = stage.stream(1)
    parked = orders.parked("billing")
    assert [(event.value, event.key) for event in parked] == [
        ("bad", "b"), (3, "b"), (5, "b"), (7, "b"),
    ]  # fmt: skip
    # another member goes on with what is known
    member.leave()
    other = stage.member(shards=1, park_after=3)
    other.balance()
    put(stage, (9, "b"))
    assert run(stage, other, {"bad"}) == []
    # still bad
    orders.unpark("billing", key="b")
    assert run(stage, other, {"bad"}) == []
    assert [event.value for event in orders.parked("billing")] == ["bad", 3, 5, 7, 9]
    # mended: it comes in order, before what follows
    orders.unpark("billing", key="b")
    put(stage, (10, "b"))
    assert run(stage, other, set()) == ["bad", 3, 5, 7, 9, 10]
    assert orders.parked("billing") == []
    put(stage, (11, "b"))
    assert run(stage, other, set()) == [11]


def test_an_event_without_a_key_is_set_aside_alone(stage: Stage) -> None:
    put(stage, ("bad", None), (1, None))
    member = stage.member(shards=1, park_after=1)
    member.balance()
    assert run(stage, member, {"bad"}) == [1]
    orders = stage.stream(1)
    (bad,) = orders.parked("billing")
    assert bad.value == "bad"
    orders.unpark("billing", event_id=bad.id)
    assert run(stage, member, set()) == ["bad"]


def test_a_key_that_is_set_aside_twice_brings_no_old_events(stage: Stage) -> None:
    put(stage, ("bad", "k"))
    member = stage.member(shards=1, park_after=1)
    member.balance()
    run(stage, member, {"bad"})
    stage.stream(1).unpark("billing", key="k")
    assert run(stage, member, set()) == ["bad"]
    put(stage, ("worse", "k"), (1, "k"))
    assert run(stage, member, {"worse"}) == []
    assert [event.value for event in stage.stream(1).parked("billing")] == ["worse", 1]
    stage.stream(1).unpark("billing", key="k")
    assert run(stage, member, set()) == ["worse", 1]


def test_a_note_is_read_as_it_was_written() -> None:
    note = parking.Note().with_key("key k", (5, b"\x01\xff")).with_key("key l", (6, b""))
    assert parking.read_note(parking.write_note(note)) == note
    assert parking.write_note(note.without("key k").without("key l")) == ""
    assert note.place("key k") == (5, b"\x01\xff")
