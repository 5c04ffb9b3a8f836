"""Events that keep failing."""

from dataclasses import replace
from typing import Any

import pytest

from dueline.core.clock import SECOND_US
from dueline.streams import dead_letters, groups
from dueline.streams.trial import begun
from tests.harness.stream_stage import TTL_US, Stage, run


def put(stage: Stage, *pairs: tuple[Any, str | None]) -> None:
    """Append events with their keys."""
    stage.stream(1).append_many(pairs)
    stage.later()


class Mortal:
    """Members of a group one after the other, each a process that some events kill."""

    def __init__(
        self, stage: Stage, deadly: set[Any], *, batch: int, park_after: int | None
    ) -> None:
        """Take what kills."""
        self.handled: list[Any] = []
        self.deaths = 0
        self._stage = stage
        self._deadly = deadly
        self._terms: dict[str, Any] = {"shards": 1, "batch": batch, "park_after": park_after}

    def lives(self, *, rounds: int = 20) -> bool:
        """Start a member; tell whether it came to the end of what there is."""
        self._stage.clock.advance(2 * TTL_US / SECOND_US)
        member = self._stage.member(**self._terms)
        member.balance()
        for _ in range(rounds):
            batch = member.poll(0)
            if batch is None:
                self._stage.clock.advance(0.5)
                member.balance()
                continue
            if self._deadly & {event.value for event in batch.events}:
                self.deaths += 1
                return False  # not a word: its lease lapses
            self.handled += [event.value for event in batch.events]
            member.commit(batch)
        member.leave()
        return True


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


@pytest.mark.slow
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


def test_an_unparked_event_that_fails_again_costs_the_next_one_no_try(stage: Stage) -> None:
    tries = 2
    put(stage, ("bad", "k"))
    member = stage.member(shards=1, park_after=tries)
    member.balance()
    assert run(stage, member, {"bad"}) == []
    stage.stream(1).unpark("billing", key="k")
    failed: list[bool] = []
    while not any(failed):
        stage.clock.advance(2)
        member.balance()
        if (batch := member.poll(0)) is not None:
            assert [event.value for event in batch.events] == ["bad"]
            failed.append(member.fail(batch))
    assert failed == [False, True]
    put(stage, ("worse", "l"))
    batch = member.poll(0)  # without a wait
    assert batch is not None
    assert [event.value for event in batch.events] == ["worse"]
    assert not member.fail(batch)


def test_a_note_is_read_as_it_was_written() -> None:
    note = dead_letters.Note().with_key("key k", (5, b"\x01\xff")).with_key("key l", (6, b""))
    assert dead_letters.read_note(dead_letters.write_note(note)) == note
    assert dead_letters.write_note(note.without("key k").without("key l")) == ""
    assert note.place("key k") == (5, b"\x01\xff")


@pytest.mark.parametrize(("batch", "deaths"), [(1, 4), (10, 5)])
def test_an_event_that_kills_its_process_is_dead_lettered(
    stage: Stage, batch: int, deaths: int
) -> None:
    put(stage, (1, "a"), ("deadly", "b"), (2, "a"), (3, "b"), (4, "c"))
    mortal = Mortal(stage, {"deadly"}, batch=batch, park_after=3)
    assert [mortal.lives() for _ in range(deaths + 1)] == [False] * deaths + [True]
    assert mortal.handled == [1, 2, 4]
    parked = stage.stream(1).parked("billing")
    assert [event.value for event in parked] == ["deadly", 3]
    put(stage, (5, "a"))
    assert mortal.lives()
    assert mortal.handled == [1, 2, 4, 5]


def test_every_event_that_kills_its_process_is_found(stage: Stage) -> None:
    deadly = {3, 4, 7}
    put(stage, *((number, None) for number in range(10)))
    mortal = Mortal(stage, deadly, batch=10, park_after=1)
    while not mortal.lives():
        assert mortal.deaths < 12
    assert sorted(mortal.handled) == [0, 1, 2, 5, 6, 8, 9]
    assert {event.value for event in stage.stream(1).parked("billing")} == deadly
    assert mortal.deaths == 2 + len(deadly)  # a batch is suspected once


def test_without_a_limit_what_kills_is_handled_for_ever(stage: Stage) -> None:
    put(stage, ("deadly", "a"))
    mortal = Mortal(stage, {"deadly"}, batch=1, park_after=None)
    assert not any(mortal.lives() for _ in range(8))
    assert stage.stream(1).parked("billing") == []


def test_a_set_aside_event_that_kills_when_it_is_handled_again_stays_aside(stage: Stage) -> None:
    put(stage, ("deadly", "a"), (1, "a"), (2, "b"))
    mortal = Mortal(stage, {"deadly"}, batch=1, park_after=1)
    while not mortal.lives():
        assert mortal.deaths < 3
    stage.stream(1).unpark("billing", key="a")
    before = mortal.deaths
    while not mortal.lives():
        assert mortal.deaths <= before + 2
    assert [event.value for event in stage.stream(1).parked("billing")] == ["deadly", 1]
    assert mortal.handled == [2]


def test_a_member_that_ends_in_good_order_is_no_death(stage: Stage) -> None:
    put(stage, ("slow", "a"))
    mortal = Mortal(stage, {"slow"}, batch=1, park_after=2)
    assert not mortal.lives()  # one death makes it a suspect
    for _ in range(5):
        stage.clock.advance(2 * TTL_US / SECOND_US)
        member = stage.member(shards=1, batch=1, park_after=2)
        member.balance()
        assert member.poll(0) is not None
        member.leave()
    assert stage.stream(1).parked("billing") == []
    # nor is an attempt that raised, whose process is killed while the event waits
    for _ in range(5):
        stage.clock.advance(2 * TTL_US / SECOND_US)
        member = stage.member(shards=1, batch=1, park_after=2)
        member.balance()
        batch = member.poll(0)
        assert batch is not None
        assert not member.fail(batch)
    assert stage.stream(1).parked("billing") == []


def test_a_member_that_only_holds_a_suspect_changes_nothing(stage: Stage) -> None:
    put(stage, ("deadly", "a"), (1, "b"))
    mortal = Mortal(stage, {"deadly"}, batch=1, park_after=2)
    for _ in range(3):
        assert not mortal.lives()
        for _ in range(2):
            stage.clock.advance(2 * TTL_US / SECOND_US)
            member = stage.member(shards=1, batch=1, park_after=2)
            member.balance()
            assert member._open(0) is not None  # and the shard is another's before it polls
            member.leave()
    assert mortal.lives()
    assert mortal.handled == [1]


def test_an_attempt_costs_no_write_where_nobody_died(stage: Stage) -> None:
    put(stage, *((number, None) for number in range(3)))
    member = stage.member(shards=1, batch=1)
    member.balance()
    batch = member.poll(0)
    assert batch is not None
    version = batch.hold.present.version
    assert groups.places(stage.store, "orders", "billing")[0].version == version
    member.commit(batch)


def test_a_suspect_runs_with_nothing_beside_it_in_its_process(stage: Stage) -> None:
    stage.stream(2).append_many([(number, str(number)) for number in range(20)])
    stage.later()
    first = stage.member(shards=2, batch=1)
    first.balance()
    assert first.begin(0)
    assert first.begin(1)
    assert first.poll(0) is not None
    assert first.poll(1) is not None  # and then it dies
    stage.clock.advance(2 * TTL_US / SECOND_US)
    member = stage.member(shards=2, batch=1)
    member.balance()
    assert member.begin(0)
    assert member.begin(1)
    batch = member.poll(0)
    assert batch is not None
    assert member.poll(1) is None
    member.commit(batch)
    member.end(0)
    other = member.poll(1)
    assert other is not None
    assert member.begin(0)
    assert member.poll(0) is None  # nothing else begins beside a suspect
    member.commit(other)
    member.end(1)
    assert member.poll(0) is not None


def test_what_is_known_of_an_attempt_is_written_with_the_note() -> None:
    trial = begun(None, (5, b"\x01"), (5, b"\x01"), epoch=2)
    note = replace(dead_letters.Note().with_key("key k", (5, b"\x01\xff")), trial=trial)
    assert dead_letters.read_note(dead_letters.write_note(note)) == note
    assert dead_letters.read_note('{"parked": {}}').trial is None
    assert trial.over().over() == trial.over()
    assert (trial.deaths, trial.over().deaths) == (1, 0)
