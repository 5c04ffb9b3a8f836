"""The rules of workflows, on every kind of store, whatever the order."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from dueline.core.attempt import Failed, Outcome
from dueline.core.retry import Retry
from dueline.jobs import cancel_requests, workflow_control
from dueline.workflows import graph, records, release, workflow
from dueline.workflows.parts import Part, group, pipeline, wait_for
from dueline.workflows.readiness import End
from tests.harness.interleaving import Turns, every_order
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
        for module in (graph, release, workflow, records):
            patch.setattr(module, "BLOCK", 1)
        return two_end(kind, folder, "abc")


def end_against_ask(kind: str, folder: Path) -> int:
    """Have one worker end the last step while another asks whether the next may run."""

    def lead(turns: Turns) -> None:
        stage = stage_with(kind, folder, chord("a", "b"))
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

    return every_order(lead, switches_max=SWITCHES_MAX)


def moved_too_early(kind: str, folder: Path) -> None:
    """Bring a step forward by hand; it must not run before what it needs."""
    stage = stage_with(kind, folder, chord("a", "b"))
    hand = Hand(stage)
    jobs = [hand.claim("a"), hand.claim("b")]
    row = stage.row("z")
    assert row is not None
    hand.queues.reschedule(row.id, stage.clock.wall_us())
    stage.work()
    assert stage.ran == []
    hand.end(*jobs)
    check_callback(stage, "a", "b")


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


def stopped_anywhere(kind: str, folder: Path) -> int:
    """Stop a worker before each of its steps, for good; others go on when claims have lapsed."""
    return every_stop(kind, folder, FlowStage.work_to_the_end)


def nobody_looks(kind: str, folder: Path) -> None:
    """Stop each worker that ended a step before it looks at what needs that."""
    stage = stage_with(kind, folder, chord("a", "b"))
    hand = Hand(stage)
    jobs = [hand.claim("a"), hand.claim("b")]
    hand.steps.advance = lambda: None  # type: ignore[method-assign]
    hand.end(*jobs)
    assert not stage.is_moved("z")
    stage.clock.advance(PARKED_S)
    stage.work()
    assert stage.given("z") == [[["a", "b"]]]


def parked_again_and_again(kind: str, folder: Path) -> None:
    """Let a step look for itself while what it needs runs and runs."""
    stage = stage_with(kind, folder, chord("a", "b"))
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


def tried_again(kind: str, folder: Path) -> None:
    """End one of two steps, and let the other be tried again: the next one waits for that."""
    stage = stage_with(kind, folder, chord("a", "b"))
    stage.retry = Retry(attempts=2)
    hand = Hand(stage)
    jobs = [hand.claim("a"), hand.claim("b")]
    hand.end(jobs[0], ending=Failed("ValueError", "a", "", retry=True))
    hand.end(jobs[1])
    assert not stage.is_moved("z")
    stage.clock.advance(10)
    hand.end(hand.claim("a"))
    check_callback(stage, "a", "b")


def a_death_comes_late(kind: str, folder: Path) -> None:
    """Write how a step died after it was retried, and is done, together with the one before it."""
    stage = stage_with(kind, folder, chord("a", "b"))
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


def cancelled_at_once(kind: str, folder: Path) -> None:
    """Let a part fail of a group of steps, of pipelines, of groups, while no worker is free."""
    for part in (PARTS, OF_MANY_STEPS, NESTED_GROUPS):
        check_cancelled_at_once(kind, folder, part, "a")


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
