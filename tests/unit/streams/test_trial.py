"""What is known of events that may kill a process, and which handlers may run beside them."""

import pytest

from dueline.streams.dead_letters import (
    Note,
    key_in,
    key_of,
    name_of,
    parked_stream,
    read_note,
    write_note,
)
from dueline.streams.trial import WAITS_US, HandlerIsolation, Trial, begun
from tests.harness.clocks import HandClock
from tests.harness.stream_stage import TTL_US, Stage

A, B, C = (5, b"\x01"), (5, b"\x02"), (6, b"")


def test_each_attempt_at_one_event_counts_as_a_death_until_it_is_over() -> None:
    first = begun(None, A, A, epoch=3)
    assert first == Trial((5, "01"), (5, "01"), deaths=1, epoch=3, key="")
    second = begun(first, A, A, epoch=4)
    assert (second.deaths, second.epoch) == (2, 4)
    assert second.over() == Trial((5, "01"), (5, "01"), deaths=1, epoch=0)
    assert second.over().over() == second.over()  # no attempt is under way
    assert begun(second.over(), A, A, epoch=5).deaths == 2
    assert begun(second, B, B, epoch=5).deaths == 1  # another event
    assert begun(second, A, A, epoch=5, key="k").deaths == 1  # the same one, when it is parked
    batch = begun(None, A, C, epoch=3)
    assert (batch.deaths, batch.until_place) == (0, C)  # any of them may have killed
    assert batch.over().deaths == 0


def test_deaths_are_those_of_one_place_and_key() -> None:
    trial = begun(begun(None, A, A, epoch=1, key="k"), A, A, epoch=2, key="k")
    assert (trial.deaths_at(A, "k"), trial.deaths_at(A, ""), trial.deaths_at(B, "k")) == (2, 0, 0)


def test_suspects_stay_suspect_while_the_first_ones_are_handled_alone() -> None:
    batch = begun(None, A, C, epoch=1)
    assert begun(batch, A, A, epoch=2).until_place == C
    assert begun(batch, B, (7, b""), epoch=2).until_place == (7, b"")
    assert begun(batch, A, A, epoch=2, key="k").until_place == A  # parked events are apart
    assert begun(begun(None, A, C, epoch=1, key="k"), A, A, epoch=2).until_place == A


def test_no_suspects_are_left_past_the_last_of_them() -> None:
    trial = begun(None, A, C, epoch=2)
    assert trial.after(A) == Trial((5, "01"), (6, ""))
    assert trial.after(B) == Trial((5, "02"), (6, ""))
    assert trial.after(C) is None
    assert trial.after((9, b"")) is None
    note = Note({"key k": (1, "")}, trial)
    assert note.behind(B).trial == trial.after(B)
    assert note.behind(C) == Note({"key k": (1, "")})
    assert Note().behind(C) == Note()


def test_a_note_moves_back_but_never_forward() -> None:
    note = Note({"key k": (5, "01"), "key l": (9, "")}, begun(None, A, A, epoch=1))
    assert note.from_place((6, b"\x07")) == Note({"key k": (5, "01"), "key l": (6, "07")})


def test_a_note_is_stored_if_a_key_is_parked_or_an_attempt_is_under_way() -> None:
    trial = begun(None, A, A, epoch=1)
    notes = [Note(), Note({"key k": (5, "")}), Note(trial=trial), Note({"key k": (5, "")}, trial)]
    assert [read_note(write_note(note)) for note in notes] == notes
    assert [bool(write_note(note)) for note in notes] == [False, True, True, True]


def test_a_row_is_parked_with_its_key_or_alone(stage: Stage) -> None:
    orders = stage.stream(1)
    with_key, alone = orders.append(1, key="event k").row, orders.append(2).row
    assert key_of(with_key) == name_of("event k", "") == "key event k"
    assert key_of(alone) == name_of(None, alone.id.hex()) == f"event {alone.id.hex()}"
    assert (key_in(key_of(with_key)), key_in(key_of(alone))) == ("event k", None)
    note = Note().with_key(key_of(with_key), A)
    assert (note.has(with_key), note.has(alone), Note().has(with_key)) == (True, False, False)
    assert note.place(key_of(with_key)) == A
    assert note.without("key other") == note
    assert parked_stream("s", "g") != parked_stream("g", "s")


@pytest.fixture
def isolation(clock: HandClock) -> HandlerIsolation:
    return HandlerIsolation(clock)


def test_a_suspect_runs_alone_in_its_process(isolation: HandlerIsolation) -> None:
    assert isolation.enter("suspect", alone=True)
    assert not isolation.enter("other", alone=False)
    assert not isolation.enter("other suspect", alone=True)
    assert isolation.enter("suspect", alone=True)  # it goes on
    isolation.leave("other")
    assert not isolation.enter("other", alone=False)
    isolation.leave("suspect")
    assert isolation.enter("other", alone=False)
    assert isolation.enter("third", alone=False)


def test_a_suspect_waits_for_those_that_run_and_no_other_begins(
    isolation: HandlerIsolation,
) -> None:
    assert isolation.enter("one", alone=False)
    assert isolation.enter("two", alone=False)
    assert not isolation.enter("suspect", alone=True)
    assert not isolation.enter("three", alone=False)
    isolation.leave("one")
    assert not isolation.enter("suspect", alone=True)
    isolation.leave("two")
    assert not isolation.enter("three", alone=False)
    assert isolation.enter("suspect", alone=True)
    isolation.leave("suspect")
    assert isolation.enter("three", alone=False)


@pytest.mark.parametrize(("waits_us", "may_begin"), [(WAITS_US - 1, False), (WAITS_US, True)])
def test_a_suspect_that_asks_no_more_holds_up_nothing(
    isolation: HandlerIsolation, clock: HandClock, waits_us: int, *, may_begin: bool
) -> None:
    assert isolation.enter("one", alone=False)
    assert not isolation.enter("suspect", alone=True)
    clock.advance(us=waits_us)
    assert isolation.enter("two", alone=False) == may_begin


def test_a_runner_that_is_no_suspect_any_more_lets_others_begin(
    isolation: HandlerIsolation,
) -> None:
    assert isolation.enter("one", alone=True)
    assert isolation.enter("one", alone=False)
    assert isolation.enter("two", alone=False)
    assert not isolation.enter("one", alone=True)  # it waits for the other one now
    assert not isolation.enter("three", alone=False)
    assert isolation.enter("one", alone=False)  # and not any more
    assert isolation.enter("three", alone=False)


def test_only_what_a_dead_member_had_begun_is_a_trial(stage: Stage) -> None:
    stage.stream(1).append_many([(number, None) for number in range(25)])
    stage.later()
    dead, fresh = stage.member("dead", shards=1), stage.member("fresh", shards=1)
    dead.balance()
    assert dead.poll(0)
    stage.clock.advance(us=3 * TTL_US)
    fresh.balance()
    are_trials: list[bool] = []
    while (batch := fresh.poll(0)) is not None:
        are_trials.append(batch.hold.note.trial is not None)
        fresh.commit(batch)
    assert are_trials == [True, False, False]
