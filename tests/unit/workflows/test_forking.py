"""A workflow is forked from a step (W15)."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from dueline import (
    Conflict,
    Dueline,
    Flow,
    NotFound,
    Retry,
    chord,
    graph,
    group,
    pipeline,
    wait_for,
)
from dueline.api.job_handle import parse_id
from dueline.core.call_options import tags_of
from dueline.core.errors import BadInput, EnqueueUnknown, StoreUnavailable
from dueline.core.store import Store
from dueline.jobs import workflow_control
from dueline.workflows import records
from dueline.workflows.forking import call_of, plan
from dueline.workflows.graph import lay_out
from dueline.workflows.parts import Pipeline
from dueline.workflows.readiness import End
from dueline.workflows.release import PARK_US
from dueline.workflows.workflow import Start, WorkflowView
from tests.harness.failing_store import FailingStore, Fault
from tests.harness.swaps import swap
from tests.harness.workflow_stage import NESTED, FlowStage, stage_of
from tests.harness.workflow_tasks import FAILING, ran, step

CALLS_MAX = 60
DONE = End("done")


def failing(app: Dueline) -> Pipeline:
    """Lay out: three numbers, their sum, a step that fails, a last one."""
    numbers = group(step(app, "add", number) for number in range(3))
    return pipeline(numbers, step(app, "total"), step(app, "fail"), step(app, "add"))


def refusal(flow: Flow) -> str:
    """Return why a workflow is not forked; empty if it is."""
    try:
        flow.fork(1)
    except Conflict as error:
        return str(error)
    return ""


def test_a_dead_workflow_is_forked_from_the_step_that_failed(app: Dueline) -> None:
    # W15
    flow = ran(app, failing(app))
    assert flow.status == "failed"
    FAILING["fails"] = False
    other = flow.fork(4)
    assert other.progress.ended == {"done": 4}
    app.run_worker(burst=True)
    assert other.result(timeout=0) == -5
    assert flow.status == "failed"
    with pytest.raises(NotFound):
        _ = other.step(3).status  # what is reused has no job
    assert {known.id for known, _ in app.flows()} == {flow.id, other.id}


def test_steps_before_the_fork_do_not_run_again_and_the_rest_does(app: Dueline) -> None:
    # W15
    calls: list[str] = []

    @app.task(name="note")
    def note(*given: Any) -> str:  # noqa: ANN401
        calls.append(str(given[-1]))
        return calls[-1]

    part = pipeline(
        group(step(app, "note", "a"), step(app, "note", "b")),
        step(app, "note", "c"),
        step(app, "note", "d"),
    )
    app.queue("default", history="arguments")
    flow = ran(app, part)
    assert sorted(calls) == ["a", "b", "c", "d"]
    for first, again in ((2, "cd"), (3, "d"), (0, "acd")):
        calls.clear()
        other = flow.fork(first)
        app.run_worker(burst=True)
        assert "".join(calls) == again
        assert other.result(timeout=0) == "d"
        assert other.status == "done"


def test_arguments_of_ended_steps_come_with_the_workflow_or_it_is_refused(app: Dueline) -> None:
    # W15
    part = pipeline(step(app, "add", 1), step(app, "add", 2), step(app, "add", 3))
    flow = ran(app, part)
    with pytest.raises(Conflict, match=r"The arguments of step 1 \(add\) are not kept"):
        flow.fork(1)
    other = flow.fork(1, part=part)
    app.run_worker(burst=True)
    assert other.result(timeout=0) == flow.result(timeout=0) == 7
    with pytest.raises(Conflict, match="has other steps"):
        flow.fork(1, part=pipeline(step(app, "add", 1), step(app, "add", 2)))
    assert len(list(app.flows())) == 2


def test_large_results_are_copied_so_that_the_old_workflow_may_expire(app: Dueline) -> None:
    # W15
    @app.task(name="size", retry=Retry(attempts=1))
    def size(text: str) -> int:
        if FAILING["fails"]:
            raise ValueError(len(text))
        return len(text)

    flow = ran(app, pipeline(step(app, "join", "x" * 5000), size.step()))
    other = flow.fork(1)
    for _ in records.forget(app.engine.store, parse_id(flow.id), flow.look.layout):
        pass
    FAILING["fails"] = False
    app.run_worker(burst=True)
    assert other.result(timeout=0) == 5000


def test_a_workflow_that_runs_is_refused(app: Dueline) -> None:
    # W15
    flow = app.start(pipeline(step(app, "add", 1), step(app, "add")))
    assert "runs: step 0 is ready" in refusal(flow)
    waiting = ran(app, pipeline(wait_for("go"), step(app, "add")))
    assert "runs: step 0 is waiting" in refusal(waiting)
    flow.cancel()
    assert flow.fork(0, part=pipeline(step(app, "add", 1), step(app, "add"))) != flow


@pytest.mark.parametrize("number", [2, 10**9, -1, True, "1", None, 0.5])
def test_a_step_that_does_not_exist_is_refused(app: Dueline, number: Any) -> None:  # noqa: ANN401
    # W15
    flow = ran(app, pipeline(step(app, "add", 1), step(app, "add")))
    with pytest.raises((NotFound, BadInput)):
        flow.fork(number)
    assert len(list(app.flows())) == 1


def test_a_step_that_was_undone_is_not_reused(app: Dueline) -> None:
    # W15
    booked = step(app, "add", 1).undone_by(step(app, "add", 2))
    flow = ran(app, pipeline(booked, step(app, "fail")))
    with pytest.raises(Conflict, match=r"Step 0 \(add\) was undone by step \d"):
        flow.fork(1)


def test_a_unique_key_stays_with_the_old_workflow(app: Dueline) -> None:
    # W15
    flow = app.start(pipeline(step(app, "add", 1), step(app, "fail")), unique="import")
    app.run_worker(burst=True)
    FAILING["fails"] = False
    other = flow.fork(1)
    app.run_worker(burst=True)
    assert other.result(timeout=0) == -2
    assert other.progress.total == 2


def test_what_was_handled_is_reused_and_a_cancelled_group_runs_again(app: Dueline) -> None:
    # W15
    app.queue("default", history="arguments")
    skipping = group(step(app, "add", 1), step(app, "fail", 1), failures="skip")
    flow = ran(app, pipeline(skipping, step(app, "total")))
    FAILING["fails"] = False
    other = flow.fork(2)
    app.run_worker(burst=True)
    assert other.result(timeout=0) == 2  # without the part that failed
    FAILING["fails"] = True
    cancelling = group(step(app, "fail", 1), step(app, "add", 1), failures="cancel")
    flow = ran(app, pipeline(cancelling, step(app, "total")))
    FAILING["fails"] = False
    other = flow.fork(0)
    app.run_worker(burst=True)
    assert other.result(timeout=0) == 1


def test_the_plan_runs_all_that_needs_what_runs(app: Dueline) -> None:
    # W15
    parts = {
        "a": step(app, "add", 1),
        "b": (step(app, "add"), "a"),
        "c": (step(app, "add"), "a"),
        "d": (step(app, "add"), "b"),
    }
    layout = lay_out(graph(parts), "").layout
    whole = dict.fromkeys(range(4), DONE)
    assert plan(layout, whole, 1) == (frozenset({0, 2}), [1, 3])
    assert plan(layout, whole | {2: End("cancelled")}, 3) == (frozenset({0, 1}), [2, 3])
    assert plan(layout, {0: DONE, 2: DONE}, 3) == (frozenset({0, 2}), [1, 3])
    assert plan(layout, whole | {0: End("dead")}, 3) == (frozenset(), [0, 1, 2, 3])


def test_a_wide_step_is_released_at_once(app: Dueline) -> None:
    # W15, rule W3
    parts = [step(app, "add", number) for number in range(400)]
    flow = ran(app, chord([*parts, step(app, "fail", 1)], step(app, "total")))
    FAILING["fails"] = False
    other = flow.fork(400)
    app.run_worker(burst=True)
    assert other.result(timeout=0) == sum(range(1, 401)) - 1


def test_a_due_time_to_come_and_what_a_step_carries_are_kept(app: Dueline) -> None:
    # W15
    later = app.task_named("add").using(after=3600, tags=["big"], tenant="acme", priority=3)
    soon = app.task_named("add").using(expires=0.1)
    flow = ran(app, pipeline(step(app, "fail", 1), later.step(), soon.step()))
    FAILING["fails"] = False
    time.sleep(0.1)
    other = flow.fork(0)
    app.run_worker(burst=True)
    row = app.queues.find(parse_id(other.step(1).id)).row
    old = app.queues.find(parse_id(flow.step(1).id)).row
    assert row is not None
    assert old is not None
    assert (row.due_us, row.lane.priority, row.lane.tenant) == (old.due_us, 3, "acme")
    assert tags_of(row) == ("big",)
    assert other.step(1).status == other.step(2).status == "scheduled"


class Forks:
    """Forks a workflow while each call of the store fails in turn."""

    def __init__(self, kind: str, folder: Path, fault: Fault) -> None:
        self._kind, self._folder, self._fault = kind, folder, fault

    def stages(self) -> Iterator[tuple[FlowStage, Start | None]]:
        """Give a stage for each call that fails, and the start to repeat; None: refused."""
        for number in range(1, CALLS_MAX):
            stage = stage_of(self._kind, self._folder)
            stage.failing_steps.add("c")
            stage.put(NESTED)
            stage.work()
            stage.failing_steps.clear()
            stage.ran.clear()
            queues = stage.queues()
            view = WorkflowView(queues.engine, stage.look().flow)
            queues.engine.catalog.settings("default")
            failing_store: Store = FailingStore(queues.engine.store, {number: self._fault})
            swap(queues, store=failing_store)
            view = WorkflowView(stage.onlooker().engine, view.flow)
            try:
                workflow_control.fork(
                    queues, view, 2, lambda _job, _step, row: row and call_of(row)
                )
            except EnqueueUnknown as error:
                yield stage, cast("Start", error.start)
            except StoreUnavailable:
                yield stage, None
            else:
                stage.close()
                assert number > 1
                return
            stage.close()


@pytest.mark.slow
@pytest.mark.parametrize("fault", Fault)
def test_a_fork_that_fails_at_any_call_runs_nothing_early_or_twice(
    kind: str, fault: Fault, tmp_path: Path
) -> None:
    """Repeat the fork after a worker ran what was stored of it, and after its end."""
    # W15, rules W1 and W10
    for stage, start in Forks(kind, tmp_path, fault).stages():
        stage.clock.advance(us=PARK_US)
        stage.work()
        assert all(given for _, given in stage.ran)  # none without the results that it needs
        if start is None:
            assert stage.counts() == {}
            continue
        for _ in range(2):
            workflow_control.start(stage.queues(), start, again=True)
            stage.start = start
            stage.work_to_the_end()
        assert stage.counts() == {"c": 1, "z": 1}
