"""Workflows are born once, whatever becomes of their start."""

from collections.abc import Iterator
from pathlib import Path

from dueline.core.errors import EnqueueUnknown
from dueline.core.store import Store
from dueline.workflows import workflow
from dueline.workflows.parts import Part
from dueline.workflows.release import PARK_US
from tests.harness.failing_store import FailingStore, Fault
from tests.harness.swaps import swap
from tests.harness.workflow_stage import NESTED, FlowStage, stage_of

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


def born_once(kind: str, folder: Path, fault: Fault) -> None:
    """Send the start again after a worker ran what was stored of it, and after its end."""
    for stage in Births(kind, folder, fault).stages(NESTED):
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
