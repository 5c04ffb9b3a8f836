"""The rules of workflows, on every kind of store, whatever the order (W1).

Two workers take their steps in every order, or one is stopped, or stands still, before each.
"""

from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from dueline.core.attempt import Failed, Outcome
from dueline.core.errors import Conflict
from dueline.core.retry import Retry
from dueline.jobs import cancel_requests, group_cancellation, workflow_control
from dueline.workflows import graph as graphs
from dueline.workflows import records, release, workflow
from dueline.workflows.parts import Part, graph, group, pipeline, wait_for
from dueline.workflows.readiness import End
from tests.harness.interleaving import Turns, every_order
from tests.harness.lives import AFTER_LEASES_US
from tests.harness.workflow_stage import NESTED, FlowStage, Hand, named, stage_of

STEPS_MAX = 200
SWITCHES_MAX = 2
PARKED_S = release.PARK_US / 1e6 + 1


def chord(*names: str) -> Part:
    """Make some steps side by side, and one that needs them all, z."""
    return pipeline(group(map(named, names)), named("z"))


def stage_with(kind: str, folder: Path, part: Part) -> FlowStage:
    """Set a stage with a workflow on it."""
    stage = stage_of(kind, folder)
    stage.put(part)
    return stage


def check_callback(stage: FlowStage, *names: str) -> None:
    """Let a worker run the rest, and look that the callback runs once, at once, as it must."""
    assert stage.is_moved("z")
    stage.work()
    assert stage.given("z") == [[list(names)]]
    assert stage.look().status() == "done"
    stage.close()


def two_end(kind: str, folder: Path, names: str = "ab") -> int:
    """Have two workers end the last two steps, in every order; the others have ended before."""

    def lead(turns: Turns) -> None:
        stage = stage_with(kind, folder, chord(*names))
        hands = [Hand(stage), Hand(stage)]
        jobs = [hands[0].claim(name) for name in names]
        hands[0].end(*jobs[:-2])
        stage.turns = turns
        turns.run([partial(hands[0].end, jobs[-2]), partial(hands[1].end, jobs[-1])])
        stage.turns = None
        check_callback(stage, *names)

    return every_order(lead, switches_max=SWITCHES_MAX)


def two_end_in_many_places(kind: str, folder: Path) -> int:
    """Have two end the last of three steps, each of whose ends lies in a place of its own."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (graphs, release, workflow, records):
            patch.setattr(module, "BLOCK", 1)
        return two_end(kind, folder, "abc")


def every_stop(kind: str, folder: Path, lead: Callable[[FlowStage], object]) -> int:
    """Lead a workflow once for every step of its worker; tell how many there are."""
    for number in range(1, STEPS_MAX):
        stage = stage_with(kind, folder, NESTED)
        stage.stop_at = frozenset([number])
        lead(stage)
        is_over = stage.steps < number
        stage.stop_at = frozenset()
        counts = stage.counts()
        assert set(counts) == set("abcz")
        assert sum(counts.values()) <= len(counts) + (0 if is_over else 2)  # two run side by side
        assert {str(given) for given in stage.given("z")} == {str([["b", "c"]])}
        assert stage.look().progress().ended == {"done": len(counts)}
        stage.close()
        if is_over:
            return number
    raise AssertionError("the workflow never runs through")


def check_cancelled_at_once(kind: str, folder: Path, part: Part, *failing: str) -> None:
    """Let parts of a group fail while no worker is free: no other part waits any more."""
    stage = stage_with(kind, folder, part)
    hand = Hand(stage)
    running = hand.claim("r")
    jobs = [hand.claim(name) for name in failing]
    hand.end(*jobs, ending=Failed("ValueError", "a", "", retry=False))
    states = {name: stage.row(name) for name in "bcd"}
    assert states == dict.fromkeys("bcd")
    requests = cancel_requests.asked(stage.onlooker().engine.store, [running.id])
    assert list(requests) == [running.id]
    hand.end(running)
    stage.work_to_the_end()
    assert stage.given("z") == []
    assert not {"b", "c", "d"} & stage.counts().keys()
    stage.close()


PARTS = pipeline(group(map(named, "rabcd"), failures="cancel"), named("z"))


OF_MANY_STEPS = pipeline(
    group(named("r"), pipeline(named("a"), named("b"), named("c")), named("d"), failures="cancel"),
    named("z"),
)


NESTED_GROUPS = pipeline(
    group(
        pipeline(named("r"), named("c")),
        group(named("a"), named("b"), failures="cancel"),
        named("d"),
        failures="cancel",
    ),
    named("z"),
)


def a_part_fails(kind: str, folder: Path) -> int:
    """Let a part of a group fail whose others wait for ever, and stop a worker at every step."""
    part = pipeline(group(named("a"), wait_for("never"), failures="cancel"), named("z"))
    for number in range(1, STEPS_MAX):
        stage = stage_with(kind, folder, part)
        stage.failing_steps = {"a"}
        stage.stop_at = frozenset([number])
        began_us = stage.clock.wall_us()
        stage.work_to_the_end()
        is_over = stage.steps < number
        assert stage.look().progress().ended == {"cancelled": 3, "dead": 1}
        assert stage.given("z") == []
        stage.close()
        if is_over:
            assert stage.clock.wall_us() - began_us < release.PARK_US
            return number
    raise AssertionError("the workflow never runs through")


pytestmark = pytest.mark.no_cover  # long, and what it runs is measured by others


# --- the last two to end, in every order ------------------------------------------------------


@pytest.mark.long
def test_the_last_two_steps_let_the_next_go_on_in_every_order(kind: str, tmp_path: Path) -> None:
    # rules W2 and W3
    assert two_end(kind, tmp_path) > SWITCHES_MAX


@pytest.mark.long
def test_those_of_a_group_that_lies_in_many_places_do_so_too(kind: str, tmp_path: Path) -> None:
    # rule W3
    assert two_end_in_many_places(kind, tmp_path) > SWITCHES_MAX


@pytest.mark.long
def test_a_step_that_is_parked_while_its_last_need_ends_goes_on(kind: str, tmp_path: Path) -> None:
    """Have one worker end the last step while another asks whether the next may run."""

    # rules W3 and W5
    def lead(turns: Turns) -> None:
        stage = stage_with(kind, tmp_path, chord("a", "b"))
        ending, asking = Hand(stage), Hand(stage)
        ending.end(ending.claim("a"))
        stage.clock.advance(PARKED_S)
        last = ending.claim("b")
        claimed = asking.claim("z")
        stage.turns = turns
        turns.run([partial(ending.end, last), partial(asking.sort, claimed)])
        stage.turns = None
        if asking.fit:
            assert asking.given == {claimed.id: b'[["a","b"]]'}
            stage.close()
        else:
            check_callback(stage, "a", "b")

    assert every_order(lead, switches_max=SWITCHES_MAX) > SWITCHES_MAX


def test_two_that_end_together_let_the_next_go_on(kind: str, tmp_path: Path) -> None:
    # rule W3
    stage = stage_with(kind, tmp_path, chord("a", "b"))
    hand = Hand(stage)
    hand.end(hand.claim("a"), hand.claim("b"))
    check_callback(stage, "a", "b")


def test_a_step_that_is_moved_too_early_does_no_harm(kind: str, tmp_path: Path) -> None:
    """Bring a step forward by hand; it must not run before what it needs."""
    # rule W4
    stage = stage_with(kind, tmp_path, chord("a", "b"))
    hand = Hand(stage)
    jobs = [hand.claim("a"), hand.claim("b")]
    row = stage.row("z")
    assert row is not None
    hand.queues.reschedule(row.id, stage.clock.wall_us())
    stage.work()
    assert stage.ran == []
    hand.end(*jobs)
    check_callback(stage, "a", "b")


# --- stopped, or standing still, at every step ------------------------------------------------


@pytest.mark.long
def test_a_workflow_comes_to_its_end_wherever_a_worker_is_stopped(
    kind: str, tmp_path: Path
) -> None:
    """Stop a worker before each of its steps, for good; others go on when claims have lapsed."""
    # rules W2 and W7
    assert every_stop(kind, tmp_path, FlowStage.work_to_the_end) > 1


@pytest.mark.long
def test_a_worker_that_wakes_up_late_runs_no_later_step(kind: str, tmp_path: Path) -> None:
    # rule W2
    def lead(stage: FlowStage) -> None:
        stage.meanwhile = stage.others_go_on
        stage.work()

    assert every_stop(kind, tmp_path, lead) > 1


def test_a_step_that_nobody_moves_looks_for_itself_after_a_minute(
    kind: str, tmp_path: Path
) -> None:
    """Stop each worker that ended a step before it looks at what needs that."""
    # rule W7
    stage = stage_with(kind, tmp_path, chord("a", "b"))
    hand = Hand(stage)
    jobs = [hand.claim("a"), hand.claim("b")]
    hand.steps.advance = lambda: None  # type: ignore[method-assign]
    hand.end(*jobs)
    assert not stage.is_moved("z")
    stage.clock.advance(PARKED_S)
    stage.work()
    assert stage.given("z") == [[["a", "b"]]]


def test_a_step_looks_less_often_the_longer_it_waits(kind: str, tmp_path: Path) -> None:
    """Let a step look for itself while what it needs runs and runs."""
    # rule W7
    stage = stage_with(kind, tmp_path, chord("a", "b"))
    hand = Hand(stage)
    jobs = [hand.claim("a"), hand.claim("b")]
    waits_s = []
    for _ in range(9):
        row = stage.row("z")
        assert row is not None
        wait_us = row.at_us - stage.clock.wall_us()
        waits_s.append(round(wait_us / 1e6))
        stage.clock.advance(us=wait_us)
        hand.sort(hand.claim("z", count=9))
    assert hand.fit == []
    assert waits_s == [60, 60, 120, 240, 480, 960, 1920, 3600, 3600]
    for job in jobs:
        recorded = records.record(job, Outcome("done", 1, value='"x"'))
        for commit in recorded:
            hand.queues.engine.store.commit(commit.partition, commit.writes)
    stage.clock.advance(3601)
    hand.sort(hand.claim("z", count=9))
    assert list(hand.given.values()) == [b'[["x","x"]]']
    stage.close()


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
    """End one of two steps, and let the other be tried again: the next one waits for that."""
    # rule W3
    stage = stage_with(kind, tmp_path, chord("a", "b"))
    stage.retry = Retry(attempts=2)
    hand = Hand(stage)
    jobs = [hand.claim("a"), hand.claim("b")]
    hand.end(jobs[0], ending=Failed("ValueError", "a", "", retry=True))
    hand.end(jobs[1])
    assert not stage.is_moved("z")
    stage.clock.advance(10)
    hand.end(hand.claim("a"))
    check_callback(stage, "a", "b")


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
    # rule W6
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
    """Write how a step died after it was retried, and is done, together with the one before it."""
    # rule W6
    stage = stage_with(kind, tmp_path, chord("a", "b"))
    hand = Hand(stage)
    first, job = hand.claim("a"), hand.claim("b")
    hand.end(job, ending=Failed("ValueError", "b", "", retry=False))
    workflow_control.retry(stage.queues(), stage.look())
    hand.end(hand.claim("b"), first)
    at_us = stage.clock.wall_us() + 1
    ends = {0: End("done", '"a"', ended_us=at_us), 1: End("done", '"b"', ended_us=at_us)}
    assert stage.look().ends() == ends
    dead = records.record(job, Outcome("dead", 1, error="ValueError: b"))
    for commit in dead:
        hand.queues.engine.store.commit(commit.partition, commit.writes)
    assert stage.look().ends() == ends
    check_callback(stage, "a", "b")


# --- groups that are cancelled ------------------------------------------------------------------


@pytest.mark.long
def test_a_group_whose_part_fails_is_cancelled_wherever_a_worker_is_stopped(
    kind: str, tmp_path: Path
) -> None:
    # rule W8
    assert a_part_fails(kind, tmp_path) > 1


def test_the_others_of_a_group_are_cancelled_while_no_worker_is_free(
    kind: str, tmp_path: Path
) -> None:
    """Let a part fail of a group of steps, of pipelines, of groups, while no worker is free."""
    # rule W8
    for part in (PARTS, OF_MANY_STEPS, NESTED_GROUPS):
        check_cancelled_at_once(kind, tmp_path, part, "a")


def test_parts_that_fail_together_cancel_the_others(kind: str, tmp_path: Path) -> None:
    # rule W8
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
    # rule W8
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
    # rule W8
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
    # rule W3
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
    # rule W5
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
