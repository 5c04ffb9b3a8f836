"""What is refused of a workflow, before anything of it is stored (W2)."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from dueline import Dueline, Unique, chord, graph, group, pipeline, wait_for
from dueline.core.errors import BadInput, QuotaExceeded
from dueline.workflows import graph as layout
from tests.harness.workflow_tasks import add, ran, step, total

CHARACTERS = 129


@pytest.fixture(scope="module")
def here() -> Dueline:
    """Make one application for all: nothing of it is ever stored."""
    app = Dueline("memory://")
    for function in (add, total):
        app.task(name=function.__name__)(function)
    return app


NO_PARTS: dict[str, Callable[[Any], object]] = {
    "an empty pipeline": lambda _: pipeline(),
    "a task in a pipeline": lambda _: pipeline(add),  # type: ignore[arg-type]
    "a text in a pipeline": lambda a: a.then("add"),
    "a task in a group": lambda a: group(a, add),  # type: ignore[arg-type]
    "a text in a group": lambda _: group("add"),  # type: ignore[arg-type]
    "bytes in a group": lambda _: group(b"add"),  # type: ignore[arg-type]
    "a mapping in a group": lambda a: group({"a": a}),  # type: ignore[dict-item]
    "a number in a list of a group": lambda a: group([a, 7]),  # type: ignore[list-item]
    "a text as a callback": lambda a: chord([a], "total"),  # type: ignore[arg-type]
    "a group in a graph": lambda a: graph({"a": group(a)}),  # type: ignore[dict-item]
    "a pipeline in a graph": lambda a: graph({"a": (a.then(a),)}),
    "a graph of nothing": lambda _: graph({}),
    "a graph of a list": lambda a: graph([a]),  # type: ignore[arg-type]
}

NO_OPTIONS: dict[str, Callable[[Any], object]] = {
    "on_failure": lambda a: pipeline(a, on_failure="collect"),  # type: ignore[arg-type]
    "on_failure is": lambda a: pipeline(a, on_failure=pipeline(a)),  # type: ignore[arg-type]
    "failures": lambda a: group(a, failures="last"),  # type: ignore[arg-type]
    "failures is": lambda a: chord([a], a, failures="go"),  # type: ignore[arg-type]
    "at_least is 2 of 1 parts": lambda a: group(a, at_least=2),
    "at_least is -0.1": lambda a: group(a, at_least=-0.1),
    "at_least is True": lambda a: group(a, at_least=True),
    "at_least is 'all'": lambda a: group(a, at_least="all"),  # type: ignore[arg-type]
    "at_least is nan": lambda a: group(a, at_least=float("nan")),
    "'' is no name": lambda _: wait_for(""),
    "no name of a signal": lambda _: wait_for("x" * CHARACTERS),
    "is no name of a signal": lambda _: wait_for("two\nlines"),
    "7 is no name": lambda _: wait_for(7),  # type: ignore[arg-type]
    "timeout is 0": lambda _: wait_for("go", timeout=0),
    "timeout is -1": lambda _: wait_for("go", timeout=-1),
    "timeout is datetime": lambda _: wait_for("go", timeout=timedelta(days=4000)),
}


@pytest.mark.parametrize("write", NO_PARTS.values(), ids=NO_PARTS.keys())
def test_what_is_no_part_is_refused(here: Dueline, write: Callable[[Any], object]) -> None:
    with pytest.raises(BadInput, match=r"is no part of a workflow|has no parts|has no steps"):
        write(step(here, "add", 1))


@pytest.mark.parametrize(("said", "write"), NO_OPTIONS.items(), ids=NO_OPTIONS.keys())
def test_an_option_that_cannot_be_is_refused(
    here: Dueline, said: str, write: Callable[[Any], object]
) -> None:
    with pytest.raises(BadInput, match=said):
        write(step(here, "add", 1))


def test_steps_that_wait_for_each_other_are_refused_and_the_circle_is_named(here: Dueline) -> None:
    # W4
    a = step(here, "add")
    with pytest.raises(BadInput, match="wait for each other: b, d, c, b"):
        graph({"a": a, "b": (a, "a", "d"), "c": (a, "b"), "d": (a, "a", "c"), "e": (a, "d")})
    with pytest.raises(BadInput, match="wait for each other: a, a"):
        graph({"a": (a, "a")})
    with pytest.raises(BadInput, match="'b' comes after 'x', which the graph has not"):
        graph({"a": a, "b": (a, "x")})


def test_what_is_no_part_is_not_started(app: Dueline) -> None:
    for other in (add, "add", [step(app, "add", 1)], None):
        with pytest.raises(BadInput, match="is no workflow"):
            app.start(other)  # type: ignore[arg-type]
    assert list(app.flows()) == []


def test_arguments_are_checked_at_the_start_and_nothing_is_stored(app: Dueline) -> None:
    # typed arguments, those that come from other steps aside
    for wrong in (
        step(app, "add", "x"),
        step(app, "add"),
        step(app, "add", 1, 2, 3),
        pipeline(step(app, "add", 1), step(app, "add", "x")),
        pipeline(step(app, "add", 1), step(app, "add", 1, 2)),
        pipeline(step(app, "add", 1), app.task_named("add").step(a=1)),
        pipeline(step(app, "add", 1), app.task_named("add").step(b="x")),
        pipeline(step(app, "add", 1), step(app, "add").alone()),
        group(step(app, "add", 1), step(app, "total", 1)),
        step(app, "add", object()),
        pipeline(step(app, "add", 1), step(app, "add", "x" * 300_000)),
    ):
        with pytest.raises(BadInput):
            app.start(wrong)
    assert list(app.flows()) == []
    assert list(app.queues.engine.jobs_of("default")) == []


def test_what_a_step_gives_is_checked_by_the_next(app: Dueline) -> None:
    app.queue("default", version_wait=0)
    flow = app.start(pipeline(step(app, "add", 1), step(app, "total")))
    app.run_worker(burst=True)
    assert flow.status == "failed"
    assert "arguments do not fit total" in flow.look.why(flow.look.outcome())  # type: ignore[arg-type]


def test_options_that_no_step_has_are_refused(here: Dueline) -> None:
    add = here.task_named("add")
    with pytest.raises(BadInput, match="does not support `tx`, `unique`, `window`, `keep`"):
        add.using(unique=Unique("{a}")).step(1)
    with pytest.raises(BadInput, match="does not support `tx`, `unique`, `window`, `keep`"):
        add.using(window=60).step(1)
    with (
        here.transaction() as tx,
        pytest.raises(BadInput, match="does not support `tx`, `unique`, `window`, `keep`"),
    ):
        add.using(tx=tx).step(1)


def test_a_limit_by_an_argument_is_refused_where_others_give_arguments(app: Dueline) -> None:
    keyed = app.task_named("add").using(limits=["host:{a}"])
    with pytest.raises(BadInput, match="names an argument that other steps may provide"):
        app.start(step(app, "add", 1).then(keyed.step()))
    assert app.start(keyed.step(1)).step(0).status == "ready"
    plain = app.task_named("add").using(limits=["all"])
    assert app.start(step(app, "add", 1).then(plain.step())).step(1).status == "scheduled"


def test_times_and_places_out_of_range_are_refused(app: Dueline) -> None:
    add = app.task_named("add")
    past = datetime(2020, 1, 1, tzinfo=UTC)
    before_due = {"after": 60, "expires": 30}
    for wrong in (
        {"priority": 2**31}, {"after": timedelta(days=4000)}, {"expires": past}, before_due,
    ):  # fmt: skip
        with pytest.raises(BadInput):
            app.start(pipeline(add.step(1), add.using(**wrong).step()))
    assert list(app.flows()) == []


def test_too_many_steps_and_too_large_a_layout_are_refused(
    app: Dueline, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = step(app, "add", 1)
    monkeypatch.setattr(layout, "STEPS_MAX", 10)
    assert app.start(group(one for _ in range(10))).progress.total == 10
    with pytest.raises(BadInput, match="more than 10 steps"):
        app.start(group(one for _ in range(11)))
    monkeypatch.setattr(layout, "LAYOUT_BYTES_MAX", 50)
    with pytest.raises(BadInput, match="more than 50 bytes"):
        app.start(group(one for _ in range(10)))
    assert len(list(app.flows())) == 1


def test_a_transaction_of_another_application_is_refused(app: Dueline) -> None:
    other = Dueline("memory://")
    with (
        other.transaction() as tx,
        pytest.raises(BadInput, match="belongs to another application"),
    ):
        app.start(step(app, "add", 1), tx=tx)
    other.close()


def test_a_workflow_falls_under_the_quotas_of_its_queues(app: Dueline) -> None:
    # F9
    app.quota("default", depth=3)
    with pytest.raises(QuotaExceeded, match="may have at most 3 waiting job"):
        app.start(group(step(app, "add", number) for number in range(4)))
    assert list(app.flows()) == []
    assert ran(app, group(step(app, "add", number) for number in range(3))).status == "done"
