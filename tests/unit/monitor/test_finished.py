"""Letting go of workflows that ended long ago."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from dueline.core.clock import DAY_US, SECOND_US
from dueline.core.job import JobId
from dueline.core.store import Records
from dueline.jobs import workflow_control
from dueline.workflows import cleanup as task
from dueline.workflows import records, workflow
from dueline.workflows.cleanup import KEEP_US, expire_workflows
from dueline.workflows.graph import lay_out
from dueline.workflows.parts import Part, group, pipeline, wait_for
from dueline.workflows.workflow import Start, WorkflowView
from tests.harness.workflow_stage import NESTED, FlowStage, named, stage_of


@pytest.fixture(params=["memory", "steps", "sqlite"])
def stage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[FlowStage]:
    """Set a stage on each kind of store."""
    stage = stage_of(request.param, tmp_path)
    yield stage
    stage.close()


def begun(stage: FlowStage, part: Part) -> Start:
    """Store a workflow."""
    stage.put(part)
    assert stage.start is not None
    return stage.start


def ended(stage: FlowStage, part: Part = NESTED) -> JobId:
    """Store a workflow, and see it through."""
    start = begun(stage, part)
    stage.work_to_the_end()
    return start.flow


def round_of(stage: FlowStage) -> list[int]:
    """Take all steps of a round of the task; answer what each did."""
    queues, acts, after = stage.onlooker(), [], None
    while True:
        report = expire_workflows(queues.engine, after)
        acts.append(report.acts)
        after = report.after
        if after is None:
            return acts


def left(stage: FlowStage) -> set[JobId]:
    """List the workflows of which something is kept."""
    return {flow for flow, _ in records.listed(stage.onlooker().engine.store)}


def kept(store: Records, start: Start) -> list[str]:
    """List where something is kept of a workflow."""
    flow, layout = start.flow, start.layout
    return [
        one for one in records.partitions_of(flow, layout) if store.read(one, after=None, limit=1)
    ]


def test_a_workflow_goes_a_week_after_its_last_end_and_nothing_is_left_of_it(
    stage: FlowStage,
) -> None:
    # O7
    start = begun(stage, pipeline(named("a"), wait_for("go"), group(named("b"), named("x" * 2000))))
    stage.work()
    look = stage.look()
    stage.clock.advance(us=6 * DAY_US)
    workflow.signal(stage.onlooker().engine, look, "go", b"1")
    stage.work_to_the_end()
    stage.clock.advance(us=KEEP_US - SECOND_US)
    assert round_of(stage) == [0]
    young = ended(stage)
    stage.clock.advance(us=2 * SECOND_US)
    assert round_of(stage) == [1]
    assert left(stage) == {young}
    assert kept(stage.onlooker().engine.store, start) == []
    stage.clock.advance(us=KEEP_US)
    assert round_of(stage) == [1]
    assert left(stage) == set()
    assert list(stage.onlooker().engine.store.read("flows", after=None, limit=1)) == []


def test_one_with_a_step_that_lives_stays(stage: FlowStage) -> None:
    waits = begun(stage, pipeline(named("a"), wait_for("go"), named("b")))
    stage.work()
    untouched = begun(stage, named("late"))
    stage.clock.advance(us=100 * KEEP_US)
    assert round_of(stage) == [0]
    assert left(stage) == {waits.flow, untouched.flow}
    workflow.signal(
        stage.onlooker().engine, WorkflowView(stage.onlooker().engine, waits.flow), "go", b"1"
    )
    stage.start = waits
    stage.work_to_the_end()
    assert WorkflowView(stage.onlooker().engine, waits.flow).status() == "done"


def test_one_with_a_dead_step_stays_until_that_is_retried(stage: FlowStage) -> None:
    # rule W6: whether others wait for the dead one, or it is the last
    stage.failing_steps = {"b", "z"}
    held = begun(stage, pipeline(named("a"), named("b"), named("c")))
    last = begun(stage, pipeline(named("a"), named("z")))
    stage.work()
    stage.clock.advance(us=100 * KEEP_US)
    assert round_of(stage) == [0]
    assert left(stage) == {held.flow, last.flow}
    stage.failing_steps = set()
    for start in (held, last):
        stage.start = start
        assert workflow_control.retry(stage.onlooker(), stage.look()).done == 1
        stage.work_to_the_end()
        assert stage.look().status() == "done"
    assert round_of(stage) == [0]
    stage.clock.advance(us=KEEP_US + SECOND_US)
    assert round_of(stage) == [2]


def test_one_that_went_on_without_its_dead_steps_goes(stage: FlowStage) -> None:
    stage.failing_steps = {"b"}
    begun(stage, pipeline(group(named("b"), named("c"), failures="skip"), named("z")))
    stage.work()
    assert stage.look().status() == "done"
    stage.clock.advance(us=KEEP_US + SECOND_US)
    assert round_of(stage) == [1]


def test_a_round_goes_on_where_a_step_ended(
    stage: FlowStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task, "FLOWS_A_STEP", 2)
    flows_there = [ended(stage, named("a")) for _ in range(3)]
    stage.clock.advance(us=DAY_US)
    waits = begun(stage, pipeline(wait_for("go"))).flow
    flows_there += [ended(stage, named("a")) for _ in range(2)]
    stage.clock.advance(us=KEEP_US + SECOND_US)
    assert left(stage) == {waits, *flows_there}
    assert sum(round_of(stage)) == len(flows_there)
    assert left(stage) == {waits}
    assert round_of(stage) == [0]


@pytest.mark.slow
def test_a_large_one_is_let_go_of_in_steps(
    stage: FlowStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task, "PAGES_A_STEP", 1)
    large = group(named(str(number)) for number in range(300)).then(named("z"))
    start = begun(stage, large)
    stage.work_to_the_end()
    stage.clock.advance(us=KEEP_US + SECOND_US)
    places = len(kept(stage.onlooker().engine.store, start))
    assert places > 4
    acts = round_of(stage)
    assert (sum(acts), len(acts) - 1) == (1, places)
    assert kept(stage.onlooker().engine.store, start) == []
    assert left(stage) == set()


def test_what_is_left_of_a_cut_off_end_goes(stage: FlowStage) -> None:
    flow = ended(stage)
    stage.clock.advance(us=KEEP_US + SECOND_US)
    queues = stage.onlooker()
    layout = records.read(queues.engine.store, flow)
    for _ in records.forget(queues.engine.store, flow, layout):
        pass
    for commit in records.put_layout(flow, lay_out(NESTED, "").layout, version=flow)[1:]:
        queues.engine.store.commit(commit.partition, commit.writes)
    assert left(stage) == {flow}
    assert round_of(stage) == [1]
    assert left(stage) == set()
