"""Workflows are born once, whatever becomes of their start."""

from contextlib import suppress
from pathlib import Path

import pytest

from dueline import Dueline, pipeline
from dueline.core.errors import EnqueueUnknown, StoreMoved, StoreUnavailable
from dueline.core.features import MOVED
from dueline.workflows import records, workflow
from tests.harness.cases.workflows_births import born_once
from tests.harness.failing_store import FailingStore, Fault
from tests.harness.swaps import swap
from tests.harness.workflow_stage import NESTED, stage_of
from tests.harness.workflow_tasks import step


@pytest.mark.parametrize("fault", Fault)
def test_a_workflow_is_born_once_however_often_it_is_sent(
    kind: str, fault: Fault, tmp_path: Path
) -> None:
    # W1
    born_once(kind, tmp_path, fault)


def nothing_is_born_of_a_refusal(folder: Path) -> None:
    """Refuse the one transaction of a start."""
    stage = stage_of("memory", folder)
    start = stage.begin(NESTED)
    stage.steps, stage.failing = 0, {"call": 1}
    queues = stage.queues()
    with pytest.raises(StoreUnavailable):
        workflow.send(queues.engine, start)
    workflow.send(queues.engine, start)
    stage.work()
    assert stage.counts() == dict.fromkeys("abcz", 1)


def test_a_start_that_was_refused_may_be_made_anew(tmp_path: Path) -> None:
    # W1
    nothing_is_born_of_a_refusal(tmp_path)


@pytest.mark.parametrize("when", ["before it is laid out", "before it is sent"])
def test_a_workflow_does_not_start_in_a_store_that_has_moved(
    kind: str, tmp_path: Path, when: str
) -> None:
    # rule X1
    stage = stage_of(kind, tmp_path)
    start = stage.begin(NESTED)
    if when == "before it is sent":  # the process knows the queue, and not yet of the move
        queues = stage.queues()
        queues.engine.catalog.settings("default")
    stage.onlooker().engine.catalog.features.use(f"{MOVED}sqlite:///other.db")
    if when == "before it is laid out":
        queues = stage.queues()
    stage.clock.advance(3600)
    with pytest.raises(StoreMoved):
        workflow.send(queues.engine, start)
    assert list(records.listed(stage.onlooker().engine.store)) == []
    stage.close()


def test_a_start_without_an_answer_is_sent_again(app: Dueline) -> None:
    # W1
    queues = app.queues
    queues.engine.catalog.settings("default")
    part = pipeline(step(app, "add", 1), step(app, "add"))
    true = queues.engine.store
    swap(queues, store=FailingStore(true, {1: Fault.AFTER}))
    with pytest.raises(EnqueueUnknown) as caught:
        app.start(part)
    swap(queues, store=FailingStore(true, {2: Fault.AFTER}))
    with suppress(EnqueueUnknown):
        app.start_again(caught.value)
    swap(queues, store=true)
    app.run_worker(burst=True)
    flow = app.start_again(caught.value)
    app.run_worker(burst=True)
    assert flow.result(0) == 3
    assert [found for found, _ in app.flows()] == [flow]


def test_a_workflow_is_started_with_the_transaction_that_it_stands_in(tmp_path: Path) -> None:
    # W1
    app = Dueline(f"sqlite:///{tmp_path}/a.db?synchronous=NORMAL")
    app.task(name="add")(lambda a, b=1: a + b)
    part = pipeline(step(app, "add", 1), step(app, "add"))
    with suppress(RuntimeError), app.transaction() as tx:
        app.start(part, tx=tx)
        raise RuntimeError
    assert list(app.flows()) == []
    with app.transaction() as tx:
        flow = app.start(part, tx=tx)
    app.run_worker(burst=True)
    assert flow.result(0) == 3
    app.close()
