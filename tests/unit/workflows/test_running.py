"""Workflows, run by a worker."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from dueline import Dueline, JobFailed, NotFound, group, pipeline, wait_for
from dueline.api.job_handle import parse_id
from dueline.core.codec import encode_result
from dueline.core.store import Delete, Drop
from dueline.workflows import records
from tests.harness.cases import workflows_running as cases
from tests.harness.cases.workflows_running import outcome
from tests.harness.workflow_tasks import ran, step, until


def test_a_pipeline_passes_on_what_its_parts_give(app: Dueline) -> None:
    cases.a_pipeline_passes_on_what_its_parts_give(app)


def test_a_group_gives_a_list_in_the_order_of_its_parts(app: Dueline) -> None:
    cases.a_group_gives_a_list_in_the_order_of_its_parts(app)


def test_an_empty_group_is_complete_once_its_turn_comes(app: Dueline) -> None:
    # W1
    assert outcome(app, group()) == []
    assert outcome(app, pipeline(group(), step(app, "total"))) == 0
    flow = app.start(pipeline(step(app, "add", 1), group(), step(app, "total")))
    assert flow.step(1).status == "scheduled"
    app.run_worker(burst=True)
    assert flow.result(0) == 0


def test_parts_nest_at_any_depth(app: Dueline) -> None:
    cases.parts_nest_at_any_depth(app)


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
    cases.each_step_of_a_graph_runs_once_after_those_that_it_names(app)


def test_what_needs_a_dead_step_waits_until_that_is_retried(app: Dueline) -> None:
    cases.what_needs_a_dead_step_waits_until_that_is_retried(app)


def test_a_pipeline_can_skip_what_fails_or_see_to_it(app: Dueline) -> None:
    cases.a_pipeline_can_skip_what_fails_or_see_to_it(app)


def test_a_group_says_what_becomes_of_failures(app: Dueline) -> None:
    cases.a_group_says_what_becomes_of_failures(app)


def test_a_wait_for_a_signal_takes_no_slot_and_gives_its_value(app: Dueline) -> None:
    cases.a_wait_for_a_signal_takes_no_slot_and_gives_its_value(app)


def test_a_wait_expires_without_a_signal(app: Dueline) -> None:
    cases.nobody_signals_in_time(app)


def test_a_branch_is_cancelled(app: Dueline) -> None:
    cases.a_branch_is_cancelled(app)


def test_a_cancelled_step_ends_what_needs_it(app: Dueline) -> None:
    cases.a_cancelled_step_ends_what_needs_it(app)


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
