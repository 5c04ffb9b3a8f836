"""Which steps may run: every rule for values, and every reason to wait, as tables."""

import json
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as some

from dueline.workflows.graph import Gathered, Layout, Node, Rule, Value, steps_in
from dueline.workflows.readiness import (
    Broken,
    End,
    Failure,
    Held,
    NotNeeded,
    Readiness,
    Runnable,
    Waits,
    evaluate,
    follows,
    judge,
    reason,
)

STEPS = 6
NODES = tuple(Node(f"task{number}") for number in range(STEPS))
PLAIN = Layout("", NODES, 0)
DONE = End("done", '"x"', ended_us=5)
DEAD = End("dead", "", "ValueError: no")
CANCELLED = End("cancelled")


def gathered(of: some.SearchStrategy[Value]) -> some.SearchStrategy[Gathered]:
    return some.builds(
        Gathered, some.lists(of, max_size=4).map(tuple), some.sampled_from(get_args(Rule)),
        some.integers(0, 4),
    ).filter(lambda value: value.rule != "last" or bool(value.of))  # fmt: skip


values = some.recursive(some.integers(0, STEPS - 1), gathered, max_leaves=8)


def model(value: Value, ends: dict[int, End]) -> tuple[Any, Failure | None]:
    """Return the value, or the failure that prevents it, by the documentation of Gathered."""
    if isinstance(value, int):
        end = ends[value]
        if end.state != "done":
            return None, Failure(value, end)
        return json.loads(end.value or "null"), None
    parts = [model(one, ends) for one in value.of]
    failures = [failure for _, failure in parts if failure is not None]
    if value.rule == "last":
        fine = [found for found, failure in parts if failure is None]
        return (fine[-1], None) if fine else (None, failures[-1])
    if failures and value.rule == "stop":
        return None, failures[0]
    if failures and len(parts) - len(failures) < value.at_least:
        return None, failures[0]
    members = []
    for found, failure in parts:
        if failure is None:
            members.append(found)
        elif value.rule == "collect":
            step, end = failure
            members.append(
                {"step": step, "task": f"task{step}", "state": end.state, "error": end.error}
            )
    return members, None


@given(values, some.lists(some.sampled_from("dxc-"), min_size=STEPS, max_size=STEPS))
def test_a_value_is_what_its_rule_says(value: Value, states: list[str]) -> None:
    kinds = {"d": End("done", "7"), "x": DEAD, "c": CANCELLED, "-": End("done", "")}
    ends = {step: kinds[state] for step, state in enumerate(states)}
    expected, failure = model(value, ends)
    found = evaluate(PLAIN, value, ends)
    if failure is not None:
        assert found == failure
    else:
        assert isinstance(found, str)
        assert json.loads(found) == expected
    assert set(steps_in((value,))) <= set(range(STEPS))


def judged(node: Node, ends: dict[int, End]) -> Readiness:
    """Judge the last step of a layout, which has this node."""
    return judge(Layout("", (*NODES, node), 0), STEPS, ends)


WHY_DEAD = "The step 0 (task0) is dead: ValueError: no"
WHY_CANCELLED = "The step 0 (task0) is cancelled"
NOTHING_FAILED = "It runs only after a failure, and nothing failed."
ACCOUNT = b'[{"step":0,"task":"task0","state":"dead","error":"ValueError: no"}]'
TABLE: dict[str, tuple[Node, dict[int, End], Readiness]] = {
    "no needs": (Node("t"), {}, Runnable(b"[]")),
    "a value": (Node("t", (0,)), {0: DONE}, Runnable(b'["x"]')),
    "two values": (Node("t", (1, 0)), {0: DONE, 1: End("done")}, Runnable(b'[null,"x"]')),
    "it waits": (Node("t", (2, 1), (4, 1)), {2: DONE}, Waits(2, 1)),
    "it waits for all that it follows": (Node("t", (), (3, 2)), {3: DONE}, Waits(1, 2)),
    "a dead one": (Node("t", (0,)), {0: DEAD}, Held(Failure(0, DEAD))),
    "a cancelled one": (Node("t", (0,)), {0: CANCELLED}, NotNeeded(WHY_CANCELLED)),
    "a dead one, handled": (Node("t", (0,), is_lenient=True), {0: DEAD}, NotNeeded(WHY_DEAD)),
    "after a done one": (Node("t", (), (0,)), {0: DONE}, Runnable(b"[]")),
    "after a dead one": (Node("t", (), (0,)), {0: DEAD}, Held(Failure(0, DEAD))),
    "after a cancelled one": (Node("t", (), (0,)), {0: CANCELLED}, NotNeeded(WHY_CANCELLED)),
    "for a failure": (Node("t", unless=0), {0: DEAD}, Runnable(ACCOUNT)),
    "without a failure": (Node("t", unless=0), {0: DONE}, NotNeeded(NOTHING_FAILED)),
    "a failure may come": (Node("t", unless=0), {}, Waits(1, 0)),
    "undo": (
        Node("t", (0,), unless=1, undoes=(0,)), {0: DONE, 1: DEAD}, Runnable(b'["x"]')
    ),
    "nothing to undo": (
        Node("t", (0,), unless=1, undoes=(0,)), {0: DONE, 1: DONE},
        NotNeeded("Nothing failed, so nothing is undone."),
    ),
    "not done, so not undone": (
        Node("t", (0,), unless=1, undoes=(0,)), {0: DEAD, 1: DEAD},
        NotNeeded("The step 0 (task0) is not done, so it is not undone."),
    ),
    "undo in sequence": (
        Node("t", (0,), unless=1, undoes=(0, 2)), {0: DONE, 1: DEAD}, Waits(1, 2)
    ),
    "undo after one that failed": (
        Node("t", (0,), unless=1, undoes=(0, 2)), {0: DONE, 1: DEAD, 2: DEAD}, Runnable(b'["x"]')
    ),
    "a part failed": (
        Node("", (Gathered((0, 1)),), cancels_from=0), {0: DEAD}, Broken(Failure(0, DEAD))
    ),
    "a part failed, and nothing is cancelled": (
        Node("", (Gathered((0, 1)),)), {0: DEAD}, Waits(1, 1)
    ),
    "no part failed yet": (Node("", (Gathered((0, 1)),), cancels_from=0), {0: DONE}, Waits(1, 1)),
    "half a part failed": (
        Node("", (Gathered((Gathered((0, 1)), 2)),), cancels_from=0), {0: DEAD}, Waits(2, 1)
    ),
    "a part of two failed": (
        Node("", (Gathered((Gathered((0, 1)), 2)),), cancels_from=0), {0: DEAD, 1: DONE},
        Broken(Failure(0, DEAD)),
    ),
    "all parts have ended": (
        Node("", (Gathered((0, 1)),), is_lenient=True, cancels_from=0), {0: DEAD, 1: DONE},
        NotNeeded(WHY_DEAD),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("node", "ends", "expected"), TABLE.values(), ids=TABLE)
def test_a_step_is_judged_by_what_it_needs(
    node: Node, ends: dict[int, End], expected: Readiness
) -> None:
    assert judged(node, ends) == expected


def test_the_first_failure_of_a_chain_is_named() -> None:
    first = NotNeeded(reason(PLAIN, Failure(0, DEAD)))
    skipped = Failure(1, End("cancelled", "", first.why))
    assert (follows(Failure(0, DEAD)), follows(skipped)) == (False, True)
    assert reason(PLAIN, skipped) == first.why == WHY_DEAD


def test_only_a_death_may_become_another_outcome() -> None:
    states = ("done", "dead", "cancelled", "expired")
    assert [End(state).is_final for state in states] == [True, False, True, True]
