"""Workflows laid out as numbered steps (W3)."""

import zlib

import pytest

from dueline.core.errors import StoreCorrupt
from dueline.workflows.graph import BLOCK, Gathered, Layout, Node, Span, Value, lay_out, read_layout
from dueline.workflows.parts import Part, Step, StepCall, chord, graph, group, pipeline, wait_for
from dueline.workflows.readiness import End, Failure, evaluate

GIVEN: list[tuple[str, int]] = []


def call(task: str) -> Step:
    """Make a step that notes how many arguments it is given."""

    def write(given: int) -> StepCall:
        GIVEN.append((task, given))
        return StepCall(task, "q", 0, b"[]")

    return Step(task, write)


A, B, C, D = (call(task) for task in "abcd")


def laid(part: Part) -> Layout:
    return lay_out(part, "").layout


def nodes(part: Part) -> tuple[Node, ...]:
    return laid(part).nodes


def test_a_step_needs_nothing_and_gives_itself() -> None:
    assert (nodes(A), laid(A).result) == ((Node("a"),), 0)


def test_a_pipeline_is_a_chain() -> None:
    assert nodes(A.then(B, C)) == (Node("a"), Node("b", (0,)), Node("c", (1,)))
    assert nodes(pipeline(A, pipeline(B), C)) == nodes(pipeline(A, B).then(C))


def test_a_callback_is_given_the_list_of_a_group() -> None:
    assert nodes(chord([A, B], C)) == (Node("a"), Node("b"), Node("c", (Gathered((0, 1)),)))
    inner = group(A, group(B, C)).then(D)
    assert nodes(inner)[3].given == (Gathered((0, Gathered((1, 2)))),)


def test_all_parts_of_a_group_are_given_what_comes_before_it() -> None:
    assert nodes(A.then(group(B, C)))[1:] == (Node("b", (0,)), Node("c", (0,)))


def test_what_comes_after_an_empty_group_comes_after_what_was_before_it() -> None:
    assert nodes(A.then(group(), B))[1] == Node("b", (Gathered(()),), after=(0,))
    assert nodes(A.then(group(), group(), B.alone()))[1] == Node("b", (), after=(0,))
    assert nodes(A.then(group(group(), B), C))[2] == Node(
        "c", (Gathered((Gathered(()), 1)),), after=(0,)
    )


def test_a_step_alone_comes_after_and_is_given_nothing() -> None:
    assert nodes(pipeline(group(A, B), C.alone()))[2] == Node("c", (), after=(0, 1))
    assert nodes(A.alone()) == (Node("a"),)


def test_a_wait_for_a_signal_comes_after_and_is_given_nothing() -> None:
    found = lay_out(pipeline(A, wait_for("go", timeout=1), B), "")
    assert found.layout.nodes[1:] == (
        Node("", (), (0,), signal="go", timeout_us=1_000_000),
        Node("b", (1,)),
    )
    assert [one is None for one in found.calls] == [False, True, False]


def test_a_graph_is_given_what_it_names_in_that_order() -> None:
    found = laid(graph({"z": (D, "y", "x"), "y": B, "x": (C, "y"), "w": (A.alone(), "x")}))
    assert found.nodes == (
        Node("b"),
        Node("c", (0,)),
        Node("d", (0, 1)),
        Node("a", (), (1,)),
    )
    assert found.result == Gathered((2, 3))
    assert laid(graph({"x": A, "y": (B, "x")})).result == 1


def test_the_first_steps_of_a_graph_come_after_what_is_before_it() -> None:
    inner = graph({"x": B, "y": C.alone(), "z": (D, "x", "y")})
    assert nodes(A.then(inner))[1:] == (
        Node("b", (0,)),
        Node("c", (), (0,)),
        Node("d", (1, 2)),
    )


def test_who_sees_to_failures_makes_steps_lenient_and_what_is_in_them() -> None:
    assert not any(node.is_lenient for node in nodes(A.then(group(B, C))))
    inner = group(A, pipeline(B, group(C)), failures="skip")
    found = nodes(D.then(inner, D))
    assert [node.is_lenient for node in found] == [False, True, True, True, False]
    assert laid(group(A, at_least=0.5)).nodes[0].is_lenient
    assert laid(pipeline(A, B, on_failure="skip")).nodes[1].is_lenient
    seen_to = laid(pipeline(A, B, on_failure=C).then(D))
    assert [node.is_lenient for node in seen_to.nodes] == [True, True, False, False]
    assert seen_to.nodes[2] == Node("c", unless=1)
    assert seen_to.nodes[3].given == (1,)


@pytest.mark.parametrize(
    ("at_least", "needed"),
    [(None, 0), (0, 0), (2, 2), (0.5, 2), (0.51, 3), (1.0, 4), (1, 1), (4, 4)],
)
def test_of_so_many_parts_there_must_be_a_result(at_least: float | None, needed: int) -> None:
    result = laid(group(A, B, C, D, at_least=at_least)).result
    assert isinstance(result, Gathered)
    assert (result.at_least, result.rule) == (needed, "stop" if at_least is None else "skip")
    collected = laid(group(A, B, C, D, failures="collect", at_least=at_least)).result
    assert isinstance(collected, Gathered)
    assert collected.rule == "collect"


def test_a_group_that_is_cancelled_is_gathered_by_a_step_of_its_own() -> None:
    found = lay_out(pipeline(A, group(B, C, failures="cancel"), D), "")
    assert found.layout.nodes[3:] == (
        Node("", (Gathered((1, 2)),), is_lenient=True, cancels_from=1),
        Node("d", (3,)),
    )
    assert found.calls[3] is None
    assert found.layout.parts[1] == Span("group failures=cancel", 1, 4)
    titles = [node.title for node in (*nodes(A.then(wait_for("go"))), found.layout.nodes[3])]
    assert titles == ["a", "the signal go", "the list of a group"]


def test_the_first_arguments_are_as_many_as_come_from_others() -> None:
    GIVEN.clear()
    laid(pipeline(A, B, group(C, C.alone()), graph({"d": D, "a": (A, "d", "d")}), on_failure=B))
    assert GIVEN == [("a", 0), ("b", 1), ("c", 1), ("c", 0), ("d", 1), ("a", 2), ("b", 1)]


def test_what_skips_gives_the_last_that_did_not_fail() -> None:
    layout = laid(pipeline(A, B, C, on_failure="skip"))
    done, dead = End("done", "1"), End("dead", "", "no")
    assert evaluate(layout, layout.result, {0: done, 1: dead, 2: End("done", "3")}) == "3"
    assert evaluate(layout, layout.result, {0: done, 1: dead, 2: dead}) == "1"
    assert evaluate(layout, layout.result, {0: dead, 1: dead, 2: dead}) == Failure(2, dead)


def test_a_layout_is_read_as_it_was_written() -> None:
    parts = pipeline(group(A, wait_for("go", timeout=5)), B, on_failure=C).then(
        group(D, A, failures="collect", at_least=1)
    )
    layout = lay_out(parts, "a name").layout
    assert read_layout(layout.to_bytes()) == layout
    for wrong in (b"", b"x", zlib.compress(b"{}"), layout.to_bytes()[:-9]):
        with pytest.raises(StoreCorrupt):
            read_layout(wrong)


def test_the_parts_are_kept_as_they_were_written() -> None:
    inner = group(B, pipeline(C, wait_for("go"), on_failure="skip"), failures="skip", at_least=1)
    layout = laid(pipeline(A, inner, graph({"d": D}), on_failure=B))
    assert layout.parts == (
        Span("pipeline", 0, 6),
        Span("group failures=skip at_least=1", 1, 4),
        Span("pipeline on_failure=skip", 2, 4),
        Span("graph", 4, 5),
    )
    assert laid(A).parts == ()
    assert laid(group()).parts == (Span("group", 0, 0),)


def test_needs_are_told_both_ways_and_by_block() -> None:
    many = group(A for _ in range(BLOCK + 1)).then(B)
    layout = laid(many)
    last = len(layout.nodes) - 1
    assert layout.needed_by == {step: [last] for step in range(last)}
    assert layout.needs_by_block(last) == {0: frozenset(range(BLOCK)), 1: frozenset({BLOCK})}
    assert layout.needs_by_block(last) is layout.needs_by_block(last)
    assert layout.needs_by_block(0) == {}
    assert list(layout.blocks()) == [0, 1]
    assert list(laid(A).blocks()) == [0]


def test_an_empty_workflow_gives_an_empty_list() -> None:
    value: Value = laid(group()).result
    assert value == Gathered(())
    assert evaluate(laid(group()), value, {}) == "[]"
