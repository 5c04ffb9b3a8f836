"""Why a step of a workflow is not running."""

from collections.abc import Mapping

import pytest

from dueline import Dueline, Flow, group, pipeline, wait_for
from dueline.admin.job_views import summaries_of
from dueline.core.attempt import Outcome
from dueline.core.engine import Engine
from dueline.core.job import Job
from dueline.jobs.explain import explain
from dueline.jobs.explanation import Explanation, Reason
from dueline.worker import workflow_steps
from dueline.worker.workflow_steps import WorkflowSteps
from dueline.workflows import records
from dueline.workflows.release import park
from dueline.workflows.status import step_statuses
from dueline.workflows.workflow import WorkflowView
from tests.harness.workflow_tasks import ran, step


def why(app: Dueline, flow: Flow, number: int, reason: Reason) -> Explanation:
    found = explain(app.queues, records.job_of(flow.look.flow, number))
    assert found.reason == reason, found
    assert found.facts["flow"] == flow.id
    assert found.facts["step"] == number
    assert flow.id in found.sentence
    return found


def test_a_parked_step_says_which_steps_it_waits_for(app: Dueline) -> None:
    # V4
    flow = app.start(group(step(app, "add", n) for n in range(3)).then(step(app, "total")))
    found = why(app, flow, 3, "steps")
    assert found.sentence == (
        "It waits for 3 of 3 steps, the first is step 0 (add), which is ready, of the workflow "
        f"{flow.id}. Also, no live worker serves the queue default (`dueline worker -q default`)."
    )
    flow.step(0).cancel()
    assert "2 of 3 steps, the first is step 1 (add), which" in why(app, flow, 3, "steps").sentence
    after = app.start(pipeline(step(app, "add", 1), wait_for("go"), step(app, "add")))
    app.run_worker(burst=True)
    found = why(app, after, 2, "steps")
    assert found.sentence.startswith("It waits for step 1 (the signal go), which is waiting, of")
    assert (found.facts["first_step"], found.facts["first_state"]) == (1, "waiting")
    done, signal, waiting = step_statuses(app.queues.engine, after.look)
    assert done.at_us > 0
    assert signal == (1, "waiting", 0, "for the signal go", 0)
    assert (waiting.at_us, waiting.errors) == (0, 0)


def test_a_held_step_says_which_dead_one_bars_its_way(app: Dueline) -> None:
    flow = ran(app, pipeline(step(app, "fail", 1), step(app, "add"), step(app, "add")))
    found = why(app, flow, 1, "held")
    assert found.sentence == (
        f"It is held by step 0 (fail) of the workflow {flow.id}, which is dead because of "
        f"ValueError: not 1, until that is retried (`dueline flows retry {flow.id}`). Also, no "
        "live worker serves the queue default (`dueline worker -q default`)."
    )
    assert found.facts["dead_step"] == 0
    assert "It waits for step 1 (add), which is held" in why(app, flow, 2, "steps").sentence


def test_a_held_step_stays_held_while_a_worker_checks_its_needs(
    app: Dueline, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[str, str, str]] = []

    def look_and_park(engine: Engine, until: Mapping[Job, int]) -> None:
        for job in until:
            found = records.step_of(job)
            assert found is not None
            look = WorkflowView(engine, found[0])
            seen.append(
                (
                    explain(app.queues, job.id).reason,
                    step_statuses(engine, look)[1].state,
                    summaries_of(engine, [job])[0].shown_state,
                )
            )
        park(engine, until)

    monkeypatch.setattr(workflow_steps, "park", look_and_park)
    ran(app, pipeline(step(app, "fail", 1), step(app, "add")))
    assert seen == [("held", "held", "held")]


def test_a_step_that_waits_for_a_signal_names_it_and_its_end(app: Dueline) -> None:
    parts = pipeline(step(app, "add", 1), wait_for("go", timeout=3600))
    flow = ran(app, parts)
    found = why(app, flow, 1, "signal")
    assert found.sentence.startswith("It waits for the signal go until 2")
    assert f"(in 59m59s) (`dueline flows signal {flow.id} go`)" in found.sentence.replace(
        "in 1h)", "in 59m59s)"
    )
    assert isinstance(found.facts["until_us"], int)
    flow = ran(app, pipeline(step(app, "add", 1), wait_for("go")))
    assert "the signal go (`" in why(app, flow, 1, "signal").sentence


def test_the_list_of_a_cancelled_group_waits_for_the_others(app: Dueline) -> None:
    later = app.task_named("add").using(after=3600)
    flow = app.start(group(step(app, "fail", 1), later.step(1), failures="cancel"))
    assert "2 of 2 steps, the first is step 0 (fail)" in why(app, flow, 2, "steps").sentence
    died = Outcome("dead", 1, error="ValueError: no")
    row = app.store.find([records.job_of(flow.look.flow, 0)])[0]
    assert row is not None
    for commit in records.record(row, died):
        app.store.commit(commit.partition, commit.writes)
    found = why(app, flow, 2, "steps")
    assert "are cancelled since step 0 (fail) of the workflow" in found.sentence
    assert found.facts["failed_step"] == 0


def test_a_step_that_nobody_moved_says_when_it_looks_for_itself(
    app: Dueline, monkeypatch: pytest.MonkeyPatch
) -> None:
    flow = app.start(pipeline(step(app, "add", 1), step(app, "add")))
    monkeypatch.setattr(WorkflowSteps, "advance", lambda _: None)
    app.run_worker(burst=True)
    found = why(app, flow, 1, "steps")
    assert "All steps" in found.sentence
    assert "when it checks this itself" in found.sentence


def test_any_step_names_its_workflow(app: Dueline) -> None:
    flow = app.start(pipeline(step(app, "add", 1), step(app, "fail")))
    found = why(app, flow, 0, "no worker")
    assert found.sentence.endswith(f"It is step 0 of the workflow {flow.id}.")
    app.run_worker(burst=True)
    assert f"It is step 1 of the workflow {flow.id}." in why(app, flow, 1, "dead").sentence
    gone = app.start(pipeline(step(app, "add", 1), step(app, "add")))
    layout = gone.look.layout
    assert list(records.forget(app.store, gone.look.flow, layout))
    assert "unknown workflow" in why(app, gone, 1, "steps").sentence
