"""Workflows are born once, whatever becomes of their start."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from dueline import Dueline, pipeline
from dueline.core.errors import EnqueueUnknown, StoreMoved, StoreUnavailable
from dueline.core.features import MOVED
from dueline.core.store import Store
from dueline.workflows import records, workflow
from dueline.workflows.parts import Part
from dueline.workflows.release import PARK_US
from tests.harness.failing_store import FailingStore, Fault
from tests.harness.swaps import swap
from tests.harness.workflow_stage import NESTED, FlowStage, stage_of
from tests.harness.workflow_tasks import step

STEPS_MAX = 200


class Births:
    """Starts a workflow while each call of the store fails in turn."""

    def __init__(self, kind: str, folder: Path, fault: Fault) -> None:
        """Take the kind of store, and how calls fail."""
        self._kind = kind
        self._folder = folder
        self._fault = fault

    def stages(self, part: Part) -> Iterator[FlowStage]:
        """Give a stage for each call that fails; what is stored by then is run."""
        for number in range(1, STEPS_MAX):
            stage = stage_of(self._kind, self._folder)
            start = stage.begin(part)
            queues = stage.queues()
            queues.engine.catalog.settings("default")
            failing: Store = FailingStore(queues.engine.store, {number: self._fault})
            swap(queues, store=failing)
            try:
                workflow.send(queues.engine, start)
            except EnqueueUnknown:
                yield stage
                stage.close()
            else:
                stage.close()
                assert number > 1
                return


@pytest.mark.parametrize("fault", Fault)
def test_a_workflow_is_born_once_however_often_it_is_sent(
    kind: str, fault: Fault, tmp_path: Path
) -> None:
    """Send the start again after a worker ran what was stored of it, and after its end."""
    # rule W1
    for stage in Births(kind, tmp_path, fault).stages(NESTED):
        stage.clock.advance(us=PARK_US)
        stage.work()
        early = stage.counts()
        assert stage.start is not None
        assert "z" not in early or len(early) == len(stage.start.jobs)
        for _ in range(2):
            workflow.send(stage.queues().engine, stage.start, again=True)
            stage.work_to_the_end()
        assert stage.counts() == dict.fromkeys("abcz", 1)
        assert stage.look().progress().ended == {"done": len(stage.start.jobs)}


def test_a_start_that_was_refused_may_be_made_anew(tmp_path: Path) -> None:
    """Refuse the one transaction of a start."""
    # rule W1
    stage = stage_of("memory", tmp_path)
    start = stage.begin(NESTED)
    stage.steps, stage.failing = 0, {"call": 1}
    queues = stage.queues()
    with pytest.raises(StoreUnavailable):
        workflow.send(queues.engine, start)
    workflow.send(queues.engine, start)
    stage.work()
    assert stage.counts() == dict.fromkeys("abcz", 1)


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
    # rule W1
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
    # rule W1
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
