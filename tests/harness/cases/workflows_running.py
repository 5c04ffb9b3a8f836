"""Workflows, run by a worker."""

from typing import Any

import pytest

from dueline import Dueline, JobFailed, NotFound, chord, graph, group, pipeline, wait_for
from dueline.core.errors import Conflict
from dueline.workflows.graph import BLOCK
from tests.harness.workflow_tasks import FAILING, ran, step, until


def outcome(app: Dueline, part: Any) -> Any:  # noqa: ANN401
    flow = ran(app, part)
    assert flow.status == "done"
    return flow.result(0)


def a_pipeline_passes_on_what_its_parts_give(app: Dueline) -> None:
    # W2
    assert outcome(app, step(app, "add", 1)) == 2
    assert outcome(app, pipeline(step(app, "add", 1), step(app, "add"), step(app, "add", 10))) == 13
    assert outcome(app, step(app, "add", 1).then(step(app, "add"))) == 3
    assert outcome(app, pipeline(step(app, "add", 1), step(app, "add", 5, 2).alone())) == 7


def a_group_gives_a_list_in_the_order_of_its_parts(app: Dueline) -> None:
    # W1
    assert outcome(app, group(step(app, "add", i) for i in (3, 1, 2))) == [4, 2, 3]
    assert outcome(app, chord([step(app, "add", 1), step(app, "add", 2)], step(app, "total"))) == 5
    numbers = range(3 * BLOCK)
    many = group(step(app, "add", i) for i in numbers).then(step(app, "total"))
    assert outcome(app, many) == sum(numbers) + len(numbers)


def parts_nest_at_any_depth(app: Dueline) -> None:
    # W3
    inner = pipeline(
        step(app, "add"), group(step(app, "add"), step(app, "add", 10)), step(app, "total")
    )
    whole = pipeline(step(app, "add", 1), group(step(app, "add"), inner), step(app, "total"))
    assert outcome(app, whole) == 3 + (4 + 13)
    deep: Any = step(app, "add", 0)
    for _ in range(20):
        deep = pipeline(group(deep), step(app, "total"))
    assert outcome(app, deep) == 1


def each_step_of_a_graph_runs_once_after_those_that_it_names(app: Dueline) -> None:
    # W4
    diamond = graph(
        {
            "last": (step(app, "join", "!"), "left", "right"),
            "right": (step(app, "add", 10), "first"),
            "left": (step(app, "add"), "first"),
            "first": step(app, "add", 1),
        }
    )
    flow = ran(app, diamond)
    assert flow.result(0) == "3 12 !"
    assert flow.progress.ended == {"done": 4}
    two_ends = graph(
        {"a": step(app, "add", 1), "b": (step(app, "add"), "a"), "c": (step(app, "add"), "a")}
    )
    assert outcome(app, pipeline(two_ends, step(app, "total"))) == 6


def what_needs_a_dead_step_waits_until_that_is_retried(app: Dueline) -> None:
    # W2, W5, W11
    flow = ran(app, pipeline(step(app, "add", 1), step(app, "fail"), step(app, "add")))
    assert flow.status == "failed"
    assert flow.step(2).status == "scheduled"
    with pytest.raises(JobFailed, match=r"The step 1 \(fail\) is dead: ValueError: not 2"):
        flow.result(0)
    FAILING["fails"] = False
    assert flow.retry() == 1
    app.run_worker(burst=True)
    assert flow.status == "done"
    assert flow.result(0) == -1


def a_pipeline_can_skip_what_fails_or_see_to_it(app: Dueline) -> None:
    # W2
    parts = step(app, "add", 1), step(app, "fail"), step(app, "add")
    assert outcome(app, pipeline(*parts, on_failure="skip")) == 3
    flow = ran(app, pipeline(*parts, on_failure=step(app, "tell", "oh")))
    assert flow.step(3).result(0) == "oh: The step 1 (fail) is dead: ValueError: not 2"
    assert (flow.status, flow.step(2).status) == ("failed", "cancelled")
    FAILING["fails"] = False
    flow = ran(app, pipeline(*parts, on_failure=step(app, "tell", "oh")))
    assert (flow.result(0), flow.step(3).status) == (-1, "cancelled")


def a_group_says_what_becomes_of_failures(app: Dueline) -> None:
    # W5
    parts = (
        step(app, "add", 1),
        step(app, "fail", 2),
        pipeline(step(app, "fail", 3), step(app, "add")),
    )
    assert outcome(app, group(*parts, failures="skip").then(step(app, "total"))) == 2
    first, second, third = outcome(app, group(*parts, failures="collect"))
    assert first == 2
    assert second == {"step": 1, "task": "fail", "state": "dead", "error": "ValueError: not 2"}
    assert third["error"] == "The step 2 (fail) is dead: ValueError: not 3"
    assert outcome(app, group(*parts, at_least=1).then(step(app, "total"))) == 2
    flow = ran(app, group(*parts, at_least=0.5).then(step(app, "total")))
    assert (flow.status, flow.step(4).status) == ("failed", "scheduled")
    flow = ran(app, pipeline(group(*parts), step(app, "total")))
    assert (flow.status, flow.progress.left) == ("failed", 2)


def a_wait_for_a_signal_takes_no_slot_and_gives_its_value(app: Dueline) -> None:
    # W8
    flow = app.start(pipeline(step(app, "add", 1), wait_for("approved"), step(app, "add", 5)))
    app.run_worker(burst=True, concurrency=1)
    assert flow.step(1).status == "scheduled"
    assert outcome(app, step(app, "add", 1)) == 2  # the one slot is free
    with pytest.raises(NotFound, match="waits for 'refused'"):
        flow.signal("refused")
    flow.signal("approved", 7)
    with pytest.raises(Conflict, match="already sent"):
        flow.signal("approved", 8)
    app.run_worker(burst=True)
    assert flow.result(0) == 12
    early = app.start(pipeline(step(app, "add", 1), wait_for("go"), step(app, "add")))
    early.signal("go", 1)
    app.run_worker(burst=True)
    assert early.result(0) == 2


def nobody_signals_in_time(app: Dueline) -> None:
    # W8
    flow = app.start(pipeline(wait_for("go", timeout=0.001), step(app, "add")))
    app.run_worker(burst=True)
    until(app, lambda: flow.status != "running")  # it is parked until its time is over
    assert flow.status == "failed"
    with pytest.raises(JobFailed, match=r"The signal go did not arrive in time"):
        flow.result(0)


def a_branch_is_cancelled(app: Dueline) -> None:
    # W11
    flow = app.start(
        pipeline(step(app, "add", 1), wait_for("go"), step(app, "add"), step(app, "add"))
    )
    app.run_worker(burst=True)
    flow.cancel(2)
    assert [flow.step(number).status for number in range(4)] == [
        "done",
        "scheduled",
        "cancelled",
        "cancelled",
    ]
    flow.cancel()
    assert flow.status == "cancelled"
    assert flow.progress.ended == {"cancelled": 3, "done": 1}
    with pytest.raises(NotFound, match="no step 4"):
        flow.cancel(4)


def a_cancelled_step_ends_what_needs_it(app: Dueline) -> None:
    # W11
    flow = app.start(pipeline(step(app, "add", 1), step(app, "add"), step(app, "add")))
    assert flow.step(0).cancel()
    app.run_worker(burst=True)
    assert flow.progress.ended == {"cancelled": 3}
    assert flow.step(2).status == "cancelled"
