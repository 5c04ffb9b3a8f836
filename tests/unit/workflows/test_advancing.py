"""The rules of workflows, on every kind of store, whatever the order.

Two workers take their steps in every order, or one is stopped, or stands still, before each.
"""

from collections import Counter
from functools import partial
from pathlib import Path

import pytest

from dueline.core.attempt import Failed
from dueline.core.errors import Conflict
from dueline.jobs import group_cancellation, workflow_control
from dueline.workflows import records, workflow
from dueline.workflows.parts import graph, group, pipeline, wait_for
from tests.harness.cases.workflows_advancing import (
    PARTS,
    SWITCHES_MAX,
    a_death_comes_late,
    a_part_fails,
    cancelled_at_once,
    check_callback,
    check_cancelled_at_once,
    chord,
    end_against_ask,
    every_stop,
    moved_too_early,
    nobody_looks,
    parked_again_and_again,
    stage_with,
    stopped_anywhere,
    tried_again,
    two_end,
    two_end_in_many_places,
)
from tests.harness.interleaving import Turns, every_order
from tests.harness.lives import AFTER_LEASES_US
from tests.harness.workflow_stage import FlowStage, Hand, named

pytestmark = pytest.mark.no_cover  # long, and what it runs is measured by others


# --- the last two to end, in every order ------------------------------------------------------


@pytest.mark.long
def test_the_last_two_steps_let_the_next_go_on_in_every_order(kind: str, tmp_path: Path) -> None:
    # W2, W3
    assert two_end(kind, tmp_path) > SWITCHES_MAX


@pytest.mark.long
def test_those_of_a_group_that_lies_in_many_places_do_so_too(kind: str, tmp_path: Path) -> None:
    # W3
    assert two_end_in_many_places(kind, tmp_path) > SWITCHES_MAX


@pytest.mark.long
def test_a_step_that_is_parked_while_its_last_need_ends_goes_on(kind: str, tmp_path: Path) -> None:
    # W3, W5
    assert end_against_ask(kind, tmp_path) > SWITCHES_MAX


def test_two_that_end_together_let_the_next_go_on(kind: str, tmp_path: Path) -> None:
    # W3
    stage = stage_with(kind, tmp_path, chord("a", "b"))
    hand = Hand(stage)
    hand.end(hand.claim("a"), hand.claim("b"))
    check_callback(stage, "a", "b")


def test_a_step_that_is_moved_too_early_does_no_harm(kind: str, tmp_path: Path) -> None:
    # W4
    moved_too_early(kind, tmp_path)


# --- stopped, or standing still, at every step ------------------------------------------------


@pytest.mark.long
def test_a_workflow_comes_to_its_end_wherever_a_worker_is_stopped(
    kind: str, tmp_path: Path
) -> None:
    # W2, W7
    assert stopped_anywhere(kind, tmp_path) > 1


@pytest.mark.long
def test_a_worker_that_wakes_up_late_runs_no_later_step(kind: str, tmp_path: Path) -> None:
    # W2
    def lead(stage: FlowStage) -> None:
        stage.meanwhile = stage.others_go_on
        stage.work()

    assert every_stop(kind, tmp_path, lead) > 1


def test_a_step_that_nobody_moves_looks_for_itself_after_a_minute(
    kind: str, tmp_path: Path
) -> None:
    # W7
    nobody_looks(kind, tmp_path)


def test_a_step_looks_less_often_the_longer_it_waits(kind: str, tmp_path: Path) -> None:
    # W7
    parked_again_and_again(kind, tmp_path)


# --- what is known without reading -------------------------------------------------------------


def test_who_ended_all_of_a_group_reads_nothing_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(*_: object) -> set[int]:
        raise AssertionError("the ends were read")

    stage = stage_with("sqlite", tmp_path, chord("a", "b", "c"))
    hand = Hand(stage)
    first, *others = [hand.claim(name) for name in "abc"]
    hand.end(first)
    monkeypatch.setattr(records, "ended", read)
    hand.end(*others)
    check_callback(stage, "a", "b", "c")


def test_what_is_to_be_tried_again_has_not_ended(kind: str, tmp_path: Path) -> None:
    # W3
    tried_again(kind, tmp_path)


def test_who_lost_a_claim_knows_nothing_of_its_step(kind: str, tmp_path: Path) -> None:
    stage = stage_with(kind, tmp_path, chord("a", "b"))
    late, hand = Hand(stage), Hand(stage)
    lost, other = late.claim("a"), late.claim("b")
    stage.clock.advance(us=AFTER_LEASES_US)
    again = hand.claim("a", count=1)
    late.end(lost, other)
    assert not stage.is_moved("z")
    hand.end(again)
    stage.work()
    assert stage.given("z") == [[["a", "b"]]]
    stage.close()


# --- deaths ------------------------------------------------------------------------------------


def test_what_waits_for_a_dead_step_goes_on_when_that_was_retried(
    kind: str, tmp_path: Path
) -> None:
    # W6
    stage = stage_with(kind, tmp_path, chord("a", "b"))
    stage.failing_steps = {"b"}
    stage.work()
    assert (stage.look().status(), stage.given("z")) == ("failed", [])
    stage.failing_steps = set()
    assert workflow_control.retry(stage.queues(), stage.look()).done == 1
    hand = Hand(stage)
    hand.end(hand.claim("b"))
    check_callback(stage, "a", "b")


def test_a_death_that_is_recorded_late_changes_no_end(kind: str, tmp_path: Path) -> None:
    # W6
    a_death_comes_late(kind, tmp_path)


# --- groups that are cancelled ------------------------------------------------------------------


@pytest.mark.long
def test_a_group_whose_part_fails_is_cancelled_wherever_a_worker_is_stopped(
    kind: str, tmp_path: Path
) -> None:
    # W8
    assert a_part_fails(kind, tmp_path) > 1


def test_the_others_of_a_group_are_cancelled_while_no_worker_is_free(
    kind: str, tmp_path: Path
) -> None:
    # W8
    cancelled_at_once(kind, tmp_path)


def test_parts_that_fail_together_cancel_the_others(kind: str, tmp_path: Path) -> None:
    # W8
    part = pipeline(group(map(named, "refabcd"), failures="cancel"), named("z"))
    check_cancelled_at_once(kind, tmp_path, part, "e", "f", "a")


@pytest.mark.parametrize("both_fail", [False, True])
def test_each_group_with_a_failed_part_is_cancelled_whatever_becomes_of_others(
    kind: str, tmp_path: Path, *, both_fail: bool
) -> None:
    """Rule W8: the failed part of another group is not its last need, or fails it twice."""
    a, b, x, e, f = map(named, "abxef")
    waits = graph({"a": a, "x": x, "b": (b, "a", "x")})
    other = group(a, x, failures="cancel") if both_fail else group(waits, failures="cancel")
    stage = stage_with(kind, tmp_path, group(other, group(e, f, failures="cancel")))
    hand = Hand(stage)
    claimed = [hand.claim(name) for name in "axe"]
    failed = claimed if both_fail else [claimed[0], claimed[2]]
    hand.end(*failed, ending=Failed("ValueError", "no", "", retry=False))
    assert stage.row("f") is None
    stage.close()


def test_a_part_that_is_cancelled_by_hand_cancels_the_others(kind: str, tmp_path: Path) -> None:
    # W8
    stage = stage_with(kind, tmp_path, PARTS)
    row = stage.row("a")
    assert row is not None
    assert stage.onlooker().cancel(row.id)
    assert [stage.row(name) for name in "bcdr"] == [None] * 4
    assert stage.look().progress().ended == {"cancelled": 5}
    stage.close()


def test_a_worker_cancels_all_of_a_large_group_other_processes_a_part(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # W8
    monkeypatch.setattr(group_cancellation, "AT_ONCE", 4)
    names = "abcdefgh"
    part = pipeline(group(map(named, names), failures="cancel"), named("z"))
    stage = stage_with(kind, tmp_path, part)
    row = stage.row("b")
    assert row is not None
    stage.onlooker().cancel(row.id)
    assert [name for name in names if stage.row(name) is None] == ["b", "c", "d", "e"]
    hand = Hand(stage)
    hand.end(hand.claim("a"), ending=Failed("ValueError", "a", "", retry=False))
    assert [name for name in names if stage.row(name) is None] == [*names[1:]]
    stage.work_to_the_end()
    assert stage.look().progress().ended == {"cancelled": 9, "dead": 1}
    stage.close()


# --- signals -----------------------------------------------------------------------------------


def test_a_signal_whose_sender_was_stopped_is_heard_when_it_is_sent_again(
    kind: str, tmp_path: Path
) -> None:
    # W3
    stage = stage_with(kind, tmp_path, pipeline(wait_for("go"), named("z")))
    stage.work()
    sender = stage.onlooker()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(workflow, "wake_steps", lambda *_: 0)
        workflow.signal(sender.engine, stage.look(), "go", b"7")
    stage.work()
    assert stage.given("z") == []
    with pytest.raises(Conflict):
        workflow.signal(sender.engine, stage.look(), "go", b"8")
    stage.work()
    assert stage.given("z") == [[7]]
    stage.close()


@pytest.mark.long
def test_a_signal_is_heard_in_every_order(kind: str, tmp_path: Path) -> None:
    # W5
    def lead(turns: Turns) -> None:
        stage = stage_with(kind, tmp_path, pipeline(wait_for("go"), named("z")))
        asking, sender = Hand(stage), Hand(stage)
        claimed = asking.claim("")
        look = stage.look()
        stage.turns = turns
        turns.run(
            [
                partial(asking.sort, claimed),
                partial(workflow.signal, sender.queues.engine, look, "go", b"7"),
            ]
        )
        stage.turns = None
        stage.work()
        assert stage.given("z") == [[7]]
        stage.close()

    assert every_order(lead, switches_max=SWITCHES_MAX) > SWITCHES_MAX


def test_a_step_whose_claim_was_lost_has_not_ended(kind: str, tmp_path: Path) -> None:
    # rules W2 and W3
    stage = stage_with(kind, tmp_path, chord("a", "b"))
    old, new = Hand(stage), Hand(stage)
    lost = old.claim("a")
    new.end(new.claim("b"))
    stage.clock.advance(us=AFTER_LEASES_US)
    taken_over = new.claim("a")
    old.end(lost)
    assert not stage.is_moved("z")
    new.end(taken_over)
    check_callback(stage, "a", "b")


def test_a_view_shows_a_dead_step_that_is_done_when_it_is_retried(tmp_path: Path) -> None:
    part = group(named("a"), named("b"), failures="cancel")
    stage = stage_with("memory", tmp_path, part)
    stage.failing_steps = {"a"}
    stage.work_to_the_end()
    view = stage.look()
    assert Counter(end.state for end in view.ends().values())["dead"] == 1
    stage.failing_steps = set()
    workflow_control.retry(stage.onlooker(), stage.look())
    stage.work_to_the_end()
    assert view.ends() == stage.look().ends()
    assert Counter(end.state for end in view.ends().values())["dead"] == 0
    stage.close()


def test_a_group_is_cancelled_whose_part_ends_at_that_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rule W8: the row of that part is gone when it is read."""
    stage = stage_with("memory", tmp_path, group(named("a"), named("b"), failures="cancel"))
    view, hand = stage.look(), Hand(stage)
    step = next(n for n, node in enumerate(view.layout.nodes) if node.cancels_from >= 0)
    hand.end(hand.claim("a"))
    with monkeypatch.context() as patch:
        patch.setattr(records, "ends", lambda *_args, **_named: {})
        workflow_control.cancel_group(stage.onlooker(), view.flow, view.layout, step)
    assert stage.look().progress().ended == {"done": 1, "cancelled": 1}
    stage.close()
