"""Events that keep failing."""

from typing import Any

from dueline.core.clock import SECOND_US
from tests.harness.stream_stage import TTL_US, Stage, run


def put(stage: Stage, *pairs: tuple[Any, str | None]) -> None:
    """Append events with their keys."""
    stage.stream(1).append_many(pairs)
    stage.later()


def an_event_without_a_key_is_set_aside_alone(stage: Stage) -> None:
    put(stage, ("bad", None), (1, None))
    member = stage.member(shards=1, park_after=1)
    member.balance()
    assert run(stage, member, {"bad"}) == [1]
    orders = stage.stream(1)
    (bad,) = orders.parked("billing")
    assert bad.value == "bad"
    orders.unpark("billing", event_id=bad.id)
    assert run(stage, member, set()) == ["bad"]


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


def an_event_that_kills_its_process_is_set_aside(stage: Stage, batch: int, deaths: int) -> None:
    put(stage, (1, "a"), ("deadly", "b"), (2, "a"), (3, "b"), (4, "c"))
    mortal = Mortal(stage, {"deadly"}, batch=batch, park_after=3)
    assert [mortal.lives() for _ in range(deaths + 1)] == [False] * deaths + [True]
    assert mortal.handled == [1, 2, 4]
    parked = stage.stream(1).parked("billing")
    assert [event.value for event in parked] == ["deadly", 3]
    put(stage, (5, "a"))
    assert mortal.lives()
    assert mortal.handled == [1, 2, 4, 5]


def a_member_that_ends_in_good_order_is_no_death(stage: Stage) -> None:
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


def a_member_that_only_holds_a_suspect_changes_nothing(stage: Stage) -> None:
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


def a_suspect_runs_with_nothing_beside_it_in_its_process(stage: Stage) -> None:
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
