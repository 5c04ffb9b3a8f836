"""What a workflow has done is undone when a later part of it fails."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dueline import Dueline, Retry, graph, group, pipeline
from dueline.core.errors import BadInput
from dueline.workflows.graph import Gathered, Node, lay_out
from dueline.workflows.parts import Step, StepCall
from tests.harness.workflow_stage import named, stage_of
from tests.harness.workflow_tasks import FAILING, ran, step

A, B, U = (Step(name, lambda _given: StepCall("", "default", 0, b"[]")) for name in ("a", "b", "u"))

UNDONE: list[Any] = []


@pytest.fixture(autouse=True)
def nothing_undone() -> Iterator[None]:
    """Begin with nothing undone."""
    UNDONE.clear()
    yield
    UNDONE.clear()


def undo(*given: object) -> None:
    """Note what is undone."""
    UNDONE.append(given)
    if given and given[0] == "in vain":
        raise ValueError("in vain")


def echo(*given: object) -> object:
    """Give the last argument."""
    return given[-1]


def breaks(given: object) -> object:
    """Fail, or give what is given."""
    if FAILING["fails"]:
        raise ValueError(given)
    return given


@pytest.fixture
def shop(app: Dueline) -> Dueline:
    """Have tasks that do, and one that undoes."""
    app.task(name="undo", retry=Retry(attempts=1))(undo)
    app.task(name="echo")(echo)
    app.task(name="breaks", retry=Retry(attempts=1))(breaks)
    return app


def did(app: Dueline, what: str) -> Step:
    """Do something that can be undone."""
    done: Step = step(app, "echo", what)
    return done.undone_by(step(app, "undo"))


@pytest.mark.slow
def test_what_was_done_is_undone_the_last_first(shop: Dueline) -> None:
    # W2
    parts = did(shop, "one"), did(shop, "two"), step(shop, "breaks"), did(shop, "never")
    flow = ran(shop, pipeline(*parts))
    assert UNDONE == [("two",), ("one",)]
    assert flow.status == "failed"
    assert flow.step(4).status == "cancelled"  # it undoes what was never done
    UNDONE.clear()
    FAILING["fails"] = False
    flow = ran(shop, pipeline(*parts))
    assert (flow.status, flow.result(0), UNDONE) == ("done", "never", [])


def test_parts_of_parts_are_undone_too(shop: Dueline) -> None:
    inner = did(shop, "one").then(did(shop, "two"))  # a pipeline, which is done
    both = group(did(shop, "three"), inner)
    ran(shop, pipeline(both, step(shop, "breaks")))
    assert UNDONE == [("two",), ("one",), ("three",)]
    UNDONE.clear()
    names = graph({"x": did(shop, "x"), "y": (did(shop, "y"), "x")})
    told = pipeline(names, step(shop, "breaks"), on_failure=step(shop, "tell", "oh"))
    flow = ran(shop, pipeline(told, did(shop, "never")))
    assert UNDONE == [("y",), ("x",)]
    assert flow.step(3).result(0) == "oh: ValueError: y"


def test_a_part_whose_failure_is_collected_is_undone_by_itself(shop: Dueline) -> None:
    broken = pipeline(did(shop, "one"), step(shop, "breaks"))
    whole = pipeline(group(broken, did(shop, "two"), failures="collect"), did(shop, "three"))
    flow = ran(shop, whole)
    assert flow.status == "done"
    assert UNDONE == [("one",)]


def test_what_cannot_be_undone_keeps_nothing_else_from_it(shop: Dueline) -> None:
    parts = did(shop, "one"), did(shop, "in vain"), did(shop, "three"), step(shop, "breaks")
    ran(shop, pipeline(*parts))
    assert UNDONE == [("three",), ("in vain",), ("one",)]


def test_who_undoes_may_be_given_nothing(shop: Dueline) -> None:
    alone = step(shop, "echo", "one").undone_by(step(shop, "undo", "all").alone())
    ran(shop, pipeline(alone, step(shop, "breaks")))
    assert UNDONE == [("all",)]


def test_what_undoes_runs_where_something_failed_and_nowhere_else(
    kind: str, tmp_path: Path
) -> None:
    """Let the last of three steps fail, then none: the two before it are undone, or are not."""
    # W2
    steps = [named(name).undone_by(named(f"not {name}")) for name in "ab"]
    for failing, undone in (({"z"}, ["not b", "not a"]), (set[str](), list[str]())):
        stage = stage_of(kind, tmp_path)
        stage.put(pipeline(*steps, named("z")))
        stage.failing_steps = failing
        stage.work()
        assert [name for name, _ in stage.ran] == ["a", "b", "z", *undone]
        assert stage.look().progress().left == 0
        stage.close()


def test_few_are_named_by_many() -> None:
    many = group(A.undone_by(U) for _ in range(3))
    nodes = lay_out(pipeline(many, B), "").layout.nodes
    assert all(node.is_lenient for node in nodes)
    assert nodes[4:] == (
        Node("u", (2,), unless=Gathered((3,)), is_lenient=True, undoes=(2,)),
        Node("u", (1,), unless=Gathered((3,)), is_lenient=True, undoes=(1, 4)),
        Node("u", (0,), unless=Gathered((3,)), is_lenient=True, undoes=(0, 5)),
    )
    last = lay_out(pipeline(B, many), "").layout.nodes
    assert last[4] == Node("", (Gathered((1, 2, 3)),), is_lenient=True)
    assert last[4].title == "the list of a group"
    assert [node.unless for node in last[5:]] == [Gathered((4,))] * 3


def test_what_cannot_undo_is_refused() -> None:
    with pytest.raises(BadInput, match="cannot be a compensation"):
        A.undone_by(pipeline(U))  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="cannot be a compensation"):
        A.undone_by(U.undone_by(B))
    with pytest.raises(BadInput, match="on_failure is"):
        pipeline(A, on_failure=B.undone_by(U))
    for part in (A.undone_by(U), group(A.undone_by(U)), graph({"a": A.undone_by(U)})):
        with pytest.raises(BadInput, match=r"step of a has a compensation, but"):
            lay_out(part, "")
