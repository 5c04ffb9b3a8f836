"""A workflow on each kind of store, whose workers stop or take turns at any step."""

import random
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from dueline.core.attempt import Done, Ended, Ending
from dueline.core.codec import decode, encode
from dueline.core.job import Job
from dueline.core.retry import Retry
from dueline.core.store import Lease, Store, Want
from dueline.jobs.queue import Queues
from dueline.worker.claimer import ClaimedJob
from dueline.worker.settler import Settler
from dueline.worker.workflow_steps import WorkflowSteps
from dueline.workflows import workflow
from dueline.workflows.graph import lay_out
from dueline.workflows.parts import Part, Step, StepCall, group, pipeline
from dueline.workflows.release import is_parked
from dueline.workflows.workflow import WorkflowView
from tests.harness.failing_store import FailingStore
from tests.harness.lives import AFTER_LEASES_US, LEASE_US, Runner, Stage, Stopped
from tests.harness.queues import queues_on
from tests.harness.stepped_store import SteppedMemoryStore
from tests.harness.world import store_on

TASK = "tests.task"
WORKERS_MAX = 4
"""So many workers, one after the other, see a workflow through in which one was stopped."""

Answer = TypeVar("Answer")


def named(name: str) -> Step:
    """Make a step that gives its name."""
    return Step(TASK, lambda _given: StepCall(TASK, "default", 0, encode([name])))


def name_in(job: Job) -> str:
    """Tell the name of a step; empty for one that waits for a signal."""
    names = decode(job.body, list[str])
    return names[0] if names else ""


NESTED = pipeline(named("a"), group(named("b"), named("c")), named("z"))


class WatchedStore(FailingStore):
    """Takes a step before each call of a store."""

    def __init__(self, store: Store, step: Callable[[str], object]) -> None:
        """Take the store, and what a step is."""
        super().__init__(store, {})
        self._take_step = step

    def _call(self, call: Callable[[], Answer]) -> Answer:
        self._take_step("call")
        return call()


@dataclass
class FlowStage(Stage):
    """A store of some kind, and one workflow on it.

    ran: names of the steps whose handlers were called, with what they were given. failing_steps:
    names of those that fail.
    """

    kind: str = "steps"
    folder: Path = field(default_factory=Path)
    data: Store | None = None
    start: workflow.Start | None = None
    ran: list[tuple[str, list[Any]]] = field(default_factory=list)
    failing_steps: set[str] = field(default_factory=set)

    def open_store(self) -> Store:
        """Make a client of the store; each step of it, or each call, is one of the stage."""
        if self.kind == "steps":
            return super().open_store()
        if self.data is None:
            place = self.folder
            if self.kind == "sqlite":
                place /= f"{len(list(self.folder.iterdir()))}"
                place.mkdir()
            self.data = store_on(self.kind, place, self.clock)
        return WatchedStore(self.data, self.step)

    def close(self) -> None:
        """Close a file."""
        if self.data is not None:
            self.data.close()

    def watch(self) -> None:
        """Note nothing."""

    def runner(self) -> Runner:
        """Make what calls the handlers."""
        return _FlowRunner(self)

    # The workflow

    def begin(self, part: Part) -> workflow.Start:
        """Lay a workflow out; nothing of it is stored."""
        self.start = workflow.begin(
            self.queues().engine, lay_out(part, "name"), self.queues().admission.admit
        )
        return self.start

    def put(self, part: Part) -> None:
        """Store a workflow, with nothing in the way."""
        workflow.send(self.queues().engine, self.begin(part))
        self.steps = 0

    def onlooker(self) -> Queues:
        """Begin a process that takes no steps of the stage."""
        store = self.data or SteppedMemoryStore(self.clock, cluster=self.cluster)
        return queues_on(store, self.clock, self.settings)

    def look(self) -> WorkflowView:
        """Look at the workflow."""
        assert self.start is not None
        return WorkflowView(self.onlooker().engine, self.start.flow)

    def row(self, name: str) -> Job | None:
        """Read the row of a step."""
        assert self.start is not None
        born = next(job for job in self.start.jobs if name_in(job) == name)
        return self.onlooker().engine.store.find([born.id])[0]

    def is_moved(self, name: str) -> bool:
        """Tell whether a step is parked no more, and due."""
        row = self.row(name)
        return row is not None and row.at_us <= self.clock.wall_us() and not is_parked(row)

    def counts(self) -> Counter[str]:
        """Tell how often each handler was called."""
        return Counter(name for name, _ in self.ran)

    def given(self, name: str) -> list[list[Any]]:
        """Tell what a handler was given, each time."""
        return [given for ran, given in self.ran if ran == name]

    def work_to_the_end(self) -> None:
        """Begin one worker after the other, each when all parked steps look for themselves."""
        for _ in range(WORKERS_MAX):
            with suppress(Stopped):
                self.work()
            if self.look().progress().left == 0:
                return
            self.clock.advance(us=AFTER_LEASES_US)
        raise AssertionError("the workflow never comes to an end")


def stage_of(kind: str, folder: Path) -> FlowStage:
    """Set a stage without a workflow; no step is tried twice by itself."""
    return FlowStage(lambda call: call, kind=kind, folder=folder, retry=Retry(attempts=1))


class _FlowRunner(Runner):
    """Calls handlers that tell their names."""

    def __init__(self, stage: FlowStage) -> None:
        self._flow_stage = stage
        super().__init__(stage)

    def _handle(self, *args: Any) -> object:  # noqa: ANN401  (whatever steps give)
        *given, name = args
        self._flow_stage.ran.append((name, given))
        if name in self._flow_stage.failing_steps:
            raise ValueError(name)
        return name


class Hand:
    """A worker's part in workflows, without the worker: each act is a call."""

    def __init__(self, stage: FlowStage) -> None:
        """Begin a process."""
        self.stage = stage
        self.queues: Queues = stage.queues()
        runner = _FlowRunner(stage)
        self._settler = Settler(self.queues.engine, runner.handlers, random.Random(1))
        self.steps = WorkflowSteps(self.queues.engine, self._settler)
        self.fit: list[ClaimedJob] = []
        self.given: dict[Any, bytes] = {}

    def claim(self, name: str, *, count: int = 1) -> Job:
        """Claim a step that is due; some of its lane with it."""
        row = self.stage.row(name)
        assert row is not None
        claimed = self.queues.engine.store.claim(
            [Want(row.lane, count)],
            limit=count,
            lease=Lease(
                self.stage.clock.wall_us(), LEASE_US, f"h{id(self)}", self.queues.engine.ids.token()
            ),
        )
        return next(job for job in claimed.jobs if job.id == row.id)

    def end(self, *jobs: Job, ending: Ending | None = None) -> None:
        """End steps, and let go on what waited for them."""
        now_us = self.stage.clock.wall_us()
        ended = [
            Ended(job, ending or Done(encode(name_in(job))), now_us, now_us + 1) for job in jobs
        ]
        self.steps.settled(ended, self._settler.settle(ended, []))
        self.steps.advance()

    def sort(self, job: Job) -> None:
        """Ask of a claimed step whether it may run; park it, or keep it as fit."""
        sorted_jobs = self.steps.sort([ClaimedJob(job, None)])
        self.fit += sorted_jobs.fit
        self.given |= sorted_jobs.given
        self.steps.park_and_end(sorted_jobs)
