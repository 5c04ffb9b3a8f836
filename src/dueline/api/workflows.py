"""An application's workflows."""

from collections.abc import Iterator
from typing import Any

from dueline.api.connection import Connection
from dueline.api.job_handle import Job, parse_id
from dueline.core.clock import Clock, pauses
from dueline.core.codec import decode_result, encode_result
from dueline.core.errors import EnqueueUnknown, JobFailed
from dueline.core.job import JobId
from dueline.jobs import workflow_control
from dueline.jobs.queue import Queues
from dueline.jobs.transaction import Transaction, expect_transaction
from dueline.workflows import records
from dueline.workflows import workflow as flows
from dueline.workflows.graph import lay_out
from dueline.workflows.parts import Part
from dueline.workflows.readiness import Failure
from dueline.workflows.workflow import FlowProgress, Start, WorkflowView


class Flow:
    """A workflow that was started."""

    __slots__ = ("_clock", "_id", "_look", "_queues")

    def __init__(self, flow: JobId, queues: Queues, clock: Clock) -> None:
        self._id = flow
        self._queues = queues
        self._clock = clock
        self._look: WorkflowView | None = None

    def __repr__(self) -> str:
        return f"<Flow {self.id}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Flow) and other._id == self._id

    def __hash__(self) -> int:
        return hash(self._id)

    @property
    def id(self) -> str:
        """The workflow's id: 32 hexadecimal digits."""
        return self._id.hex()

    @property
    def look(self) -> WorkflowView:
        """What reads it.

        Raises: NotFound: there is no such workflow, or nothing is kept of it.
        """
        if self._look is None:
            self._look = WorkflowView(self._queues.engine, self._id)
        return self._look

    @property
    def name(self) -> str:
        """The name that it was started under; empty where there was none."""
        return self.look.layout.name

    @property
    def status(self) -> str:
        """Its state now: running, done, failed or cancelled.

        Failed, too, while a step is dead and others wait for its retry.

        Raises: NotFound: there is no such workflow, or nothing is kept of it.
        """
        return self.look.status()

    @property
    def progress(self) -> FlowProgress:
        """How many steps there are, and have ended, by state."""
        return self.look.progress()

    def step(self, number: int) -> Job[Any]:
        """Make a handle on the job of a step; they are numbered from 0, as they were given."""
        self.look.branch(number)
        return Job(records.job_of(self._id, number), self._queues, self._clock)

    def result(self, timeout: float | None = None) -> Any:  # noqa: ANN401  (of the last part)
        """Wait for the last part to end, and answer what it gives.

        Args: timeout: seconds; None waits as long as it takes, 0 only looks.

        Raises:
          JobFailed: it gives nothing, because of the step that the message names.
          TimeoutError: it has not ended in time. NotFound: nothing is kept of it.
        """
        for pause_s in pauses(self._clock, timeout):
            outcome = self.look.outcome()
            if outcome is not None:
                return self._value(outcome)
            if pause_s is None:
                break
            self._clock.sleep(pause_s)
        raise self._late()

    async def aresult(self, timeout: float | None = None) -> Any:  # noqa: ANN401, ASYNC109
        """Do as `result` without blocking the loop; each look is taken in another thread."""
        import asyncio  # noqa: PLC0415  (slow to load)

        for pause_s in pauses(self._clock, timeout):
            outcome = await asyncio.to_thread(self.look.outcome)
            if outcome is not None:
                return self._value(outcome)
            if pause_s is None:
                break
            await asyncio.sleep(pause_s)
        raise self._late()

    def _value(self, outcome: str | Failure) -> Any:  # noqa: ANN401
        if isinstance(outcome, Failure):
            raise JobFailed(f"The workflow {self.id} gives nothing. {self.look.why(outcome)}")
        return decode_result(outcome, Any)

    def _late(self) -> TimeoutError:
        progress = self.progress
        return TimeoutError(
            f"The workflow {self.id} goes on: {progress.left} of {progress.total} steps are left."
        )

    def cancel(self, step: int | None = None) -> None:
        """End all steps that have not ended: at once those that wait; the others are asked to.

        Args: step: only that one, and those that need it.

        Raises: NotFound: there is no such workflow or step.
        """
        workflow_control.cancel(self._queues, self.look, step)

    def retry(self, step: int | None = None) -> int:
        """Run the steps anew that are dead; what waits for them goes on then.

        Args: step: only of that one and those that need it.

        Returns: how many.

        Raises: NotFound: there is no such workflow or step.
        """
        return workflow_control.retry(self._queues, self.look, step).done

    def signal(self, name: str, value: object = None) -> None:
        """Let the steps go on that `wait_for` this name; they give the value.

        Raises:
          NotFound: no step waits for it. Conflict: it was signalled before.
          BadInput: the value cannot be written as JSON.
        """
        flows.signal(
            self._queues.engine, self.look, name, encode_result(value, f"the signal {name}")
        )


class WorkflowMethods(Connection):
    """Methods of an application that start and find workflows."""

    def start(self, part: Part, *, name: str = "", tx: Transaction | None = None) -> Flow:
        """Start a workflow: store it durably, with all its steps.

        Args:
            part: A step, or steps combined by `pipeline`, `group`, `chord` or `graph`.
            name: A title for people.
            tx: The transaction that stores the workflow; None for one of its own.

        Returns:
            A handle on the workflow; its steps run in workers.

        Raises:
            BadInput: The arguments of a step do not fit, or a value is out of range. Nothing was
                stored.
            EnqueueUnknown: The workflow may or may not be stored; see `start_again`.
            StoreUnavailable: Nothing was stored.
        """
        laid_out = lay_out(part, name)
        queues = self.queues
        inside = queues if tx is None else expect_transaction(tx).queues_of(self)
        start = flows.begin(inside.engine, laid_out, inside.admission.admit)
        try:
            flows.send(inside.engine, start)
        except EnqueueUnknown as error:
            error.start = start
            raise
        return Flow(start.flow, queues, self.clock)

    def start_again(self, error: EnqueueUnknown) -> Flow:
        """Repeat a start whose result is unknown, without storing it twice.

        Call it within a day of the failed start.

        Args:
            error: The error that `start` raised.

        Returns:
            A handle on the workflow.

        Raises:
            EnqueueUnknown: The workflow may or may not be stored; call it again.
            StoreUnavailable: Nothing was stored by this call.
        """
        start = error.start
        assert isinstance(start, Start), "the error of a workflow's start"
        try:
            flows.send(self.engine, start, again=True)
        except EnqueueUnknown as unknown:
            unknown.start = start
            raise
        return Flow(start.flow, self.queues, self.clock)

    def flow(self, flow_id: str) -> Flow:
        """Return a handle on a workflow without reading the store.

        Args:
            flow_id: Id of the workflow, 32 hexadecimal digits.

        Raises:
            BadInput: `flow_id` is not an id.
        """
        return Flow(parse_id(flow_id), self.queues, self.clock)

    def flows(self) -> Iterator[tuple[Flow, str]]:
        """Yield the stored workflows with their names, newest first."""
        queues, clock = self.queues, self.clock
        for flow, name in records.listed(queues.engine.store):
            yield Flow(flow, queues, clock), name
