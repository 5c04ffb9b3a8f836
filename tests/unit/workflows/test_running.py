"""Workflows, run by a worker (W7)."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from dueline import Dueline, JobFailed, NotFound, chord, graph, group, pipeline, wait_for
from dueline.api.job_handle import parse_id
from dueline.core.codec import encode_result
from dueline.core.errors import Conflict
from dueline.core.store import Delete, Drop
from dueline.workflows import records
from dueline.workflows.graph import BLOCK
from tests.harness.workflow_tasks import FAILING, ran, step, until


def outcome(app: Dueline, part: Any) -> Any:  # noqa: ANN401
    flow = ran(app, part)
    assert flow.status == "done"
    return flow.result(0)


def test_a_pipeline_passes_on_what_its_parts_give(app: Dueline) -> None:
    # W2
    assert outcome(app, step(app, "add", 1)) == 2
    assert outcome(app, pipeline(step(app, "add", 1), step(app, "add"), step(app, "add", 10))) == 13
    assert outcome(app, step(app, "add", 1).then(step(app, "add"))) == 3
    assert outcome(app, pipeline(step(app, "add", 1), step(app, "add", 5, 2).alone())) == 7


@pytest.mark.slow
def test_a_group_gives_a_list_in_the_order_of_its_parts(app: Dueline) -> None:
    # W1
    assert outcome(app, group(step(app, "add", i) for i in (3, 1, 2))) == [4, 2, 3]
    assert outcome(app, chord([step(app, "add", 1), step(app, "add", 2)], step(app, "total"))) == 5
    numbers = range(3 * BLOCK)
    many = group(step(app, "add", i) for i in numbers).then(step(app, "total"))
    assert outcome(app, many) == sum(numbers) + len(numbers)


def test_an_empty_group_is_complete_once_its_turn_comes(app: Dueline) -> None:
    # W1
    assert outcome(app, group()) == []
    assert outcome(app, pipeline(group(), step(app, "total"))) == 0
    flow = app.start(pipeline(step(app, "add", 1), group(), step(app, "total")))
    assert flow.step(1).status == "scheduled"
    app.run_worker(burst=True)
    assert flow.result(0) == 0


@pytest.mark.slow
def test_parts_nest_at_any_depth(app: Dueline) -> None:
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


@pytest.mark.long
@pytest.mark.no_cover  # long, and what it runs is measured by others
def test_a_group_of_pipelines_of_groups_has_ten_thousand_children(app: Dueline) -> None:
    # W3
    rows = (
        pipeline(group(step(app, "add", row, cell) for cell in range(100)), step(app, "total"))
        for row in range(100)
    )
    flow = app.start(pipeline(group(rows), step(app, "total")))
    app.run_worker(burst=True)
    assert flow.result(timeout=10) == 100 * 100 * 99
    assert flow.progress.done == flow.progress.total == 10_000 + 100 + 1


def test_each_step_of_a_graph_runs_once_after_those_that_it_names(app: Dueline) -> None:
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


def test_what_needs_a_dead_step_waits_until_that_is_retried(app: Dueline) -> None:
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


@pytest.mark.slow
def test_a_pipeline_can_skip_what_fails_or_see_to_it(app: Dueline) -> None:
    # W2
    parts = step(app, "add", 1), step(app, "fail"), step(app, "add")
    assert outcome(app, pipeline(*parts, on_failure="skip")) == 3
    flow = ran(app, pipeline(*parts, on_failure=step(app, "tell", "oh")))
    assert flow.step(3).result(0) == "oh: The step 1 (fail) is dead: ValueError: not 2"
    assert (flow.status, flow.step(2).status) == ("failed", "cancelled")
    FAILING["fails"] = False
    flow = ran(app, pipeline(*parts, on_failure=step(app, "tell", "oh")))
    assert (flow.result(0), flow.step(3).status) == (-1, "cancelled")


@pytest.mark.slow
def test_a_group_says_what_becomes_of_failures(app: Dueline) -> None:
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


def test_a_wait_for_a_signal_takes_no_slot_and_gives_its_value(app: Dueline) -> None:
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


def test_a_wait_expires_without_a_signal(app: Dueline) -> None:
    # W8
    flow = app.start(pipeline(wait_for("go", timeout=0.001), step(app, "add")))
    app.run_worker(burst=True)
    until(app, lambda: flow.status != "running")  # it is parked until its time is over
    assert flow.status == "failed"
    with pytest.raises(JobFailed, match=r"The signal go did not arrive in time"):
        flow.result(0)


def test_a_branch_is_cancelled(app: Dueline) -> None:
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


def test_a_cancelled_step_ends_what_needs_it(app: Dueline) -> None:
    # W11
    flow = app.start(pipeline(step(app, "add", 1), step(app, "add"), step(app, "add")))
    assert flow.step(0).cancel()
    app.run_worker(burst=True)
    assert flow.progress.ended == {"cancelled": 3}
    assert flow.step(2).status == "cancelled"


def test_results_larger_than_an_end_lie_apart(app: Dueline) -> None:
    long = "x" * 5000
    assert outcome(app, pipeline(step(app, "join", long), step(app, "join", "y"))) == f"{long} y"
    assert len(encode_result(long, "join")) > 4096


def test_steps_keep_what_they_give_though_their_queue_keeps_nothing(app: Dueline) -> None:
    app.queue("default", keep=0, history="off")
    assert outcome(app, pipeline(step(app, "add", 1), step(app, "add"))) == 3


def test_a_later_step_is_not_before_its_due_time(app: Dueline) -> None:
    later = datetime.now(UTC) + timedelta(hours=1)
    add = app.task_named("add")
    flow = ran(app, pipeline(step(app, "add", 1), add.using(due=later).step()))
    assert flow.progress.ended == {"done": 1}
    assert flow.step(1).status == "scheduled"


def test_a_flow_is_found_again_and_waited_for(app: Dueline) -> None:
    flow = app.start(pipeline(step(app, "add", 1), step(app, "add")), name="twice")
    again = app.flow(flow.id)
    assert (again, again.name, again.status) == (flow, "twice", "running")
    assert [(found, name) for found, name in app.flows()] == [(flow, "twice")]
    with pytest.raises(TimeoutError, match="2 of 2 steps left"):
        again.result(0)
    app.run_worker(burst=True)
    assert asyncio.run(again.aresult(0)) == 3
    with pytest.raises(NotFound, match="There is no workflow"):
        app.flow("0" * 32).status  # noqa: B018


def test_what_waits_for_a_dead_job_ends_when_that_is_purged(app: Dueline) -> None:
    flow = ran(app, pipeline(step(app, "fail", 1), step(app, "add")))
    row = app.queues.find(parse_id(flow.step(0).id)).row
    assert row is not None
    app.queues.engine.store.settle([Drop(row)])
    flow.step(1).retry()  # it asks again at once
    app.run_worker(burst=True)
    assert flow.step(1).status == "cancelled"
    with pytest.raises(JobFailed, match="its deleted job cannot be retried"):
        flow.result(0)


def test_a_dead_step_that_is_retried_is_waited_for(app: Dueline) -> None:
    flow = ran(app, pipeline(step(app, "fail", 1), step(app, "add")))
    flow.retry()
    assert flow.status == "running"
    with pytest.raises(TimeoutError):
        flow.result(0)


def test_a_group_cancels_its_other_parts_when_one_fails(app: Dueline) -> None:
    # W5
    many = [pipeline(wait_for(f"never{number}"), step(app, "add")) for number in range(3)]
    parts = group(step(app, "fail", 1), step(app, "add", 1), *many, failures="cancel")
    flow = ran(app, pipeline(parts, step(app, "total")))
    until(app, lambda: not flow.progress.left)  # what gathers the group looks after a second
    assert flow.status == "failed"
    assert flow.progress.ended == {"cancelled": 8, "dead": 1, "done": 1}
    with pytest.raises(JobFailed, match=r"The step 0 \(fail\) is dead: ValueError: not 1"):
        flow.result(0)
    fine = group(step(app, "add", 1), step(app, "add", 2), failures="cancel")
    assert outcome(app, fine.then(step(app, "total"))) == 5
    assert outcome(app, group(failures="cancel")) == []


def test_a_result_that_is_not_readable_yet_hides_no_other_step(app: Dueline) -> None:
    """A large one has a record of its own, which some stores may show later."""
    flow = ran(app, group(step(app, "join", "x" * 5000), step(app, "add", 1), step(app, "add", 2)))
    store, number = app.store, flow.look.flow
    assert records.ends(store, number, [0]).keys() >= {0, 1, 2}
    (values,) = [
        one for one in records.partitions_of(number, flow.look.layout) if "/values/" in one
    ]
    for record in store.read(values, after=None, limit=9):
        store.commit(values, [Delete(record.key)])
    assert records.ends(store, number, [0]).keys() >= {1, 2}
    assert 0 not in records.ends(store, number, [0])
    assert 0 in records.ends(store, number, [0], with_values=False)
