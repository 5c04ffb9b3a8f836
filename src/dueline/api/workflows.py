"""Workflows of an application."""

from collections.abc import Iterator
from typing import Any

from dueline.api.code_changes import acting
from dueline.api.connection import Connection
from dueline.api.handle import Handle, twin
from dueline.api.job_handle import Job, parse_id
from dueline.api.tracing import traced_start
from dueline.core.blobs import whole_given
from dueline.core.call_options import Rule, Unique
from dueline.core.clock import Clock
from dueline.core.codec import decode_result, encode_result
from dueline.core.errors import BadInput, EnqueueUnknown, JobFailed
from dueline.core.job import JobId
from dueline.jobs import dependencies, workflow_control
from dueline.jobs.queue import Queues
from dueline.jobs.transaction import in_transaction
from dueline.workflows import records
from dueline.workflows import workflow as flows
from dueline.workflows.graph import LaidOut, lay_out
from dueline.workflows.parts import Part
from dueline.workflows.readiness import Failure
from dueline.workflows.workflow import FlowProgress, Start, WorkflowView


class Flow(Handle[Any]):
    """A handle on a started workflow.

    `app.start(...)` returns it, `app.flow(flow_id)` creates it from an id. `await flow.astatus()`
    does as `status` without blocking the event loop; so do the other names with an `a` in front.
    """

    __slots__ = ("_look",)
    _awaited = ("flow", "app.astart")

    def __init__(self, flow: JobId, queues: Queues, clock: Clock) -> None:
        super().__init__(flow, queues, clock)
        self._look: WorkflowView | None = None

    @property
    def look(self) -> WorkflowView:
        """The stored workflow.

        Raises:
            NotFound: The workflow does not exist, or has expired.
        """
        if self._look is None:
            self._look = WorkflowView(self._queues.engine, self._id)
        return self._look

    @property
    def name(self) -> str:
        """The name of the workflow; empty if it has none."""
        return self.look.layout.name

    @property
    def status(self) -> str:
        """The state of the workflow: running, done, failed or cancelled.

        A workflow is also failed while a step is dead and others wait for its retry.

        Raises:
            NotFound: The workflow does not exist, or has expired.
        """
        return self.look.status()

    @property
    def progress(self) -> FlowProgress:
        """The number of steps, and of ended steps by state."""
        return self.look.progress()

    def step(self, number: int) -> Job[Any]:
        """Return a handle on the job of a step.

        Args:
            number: Number of the step, from 0, in the order of the workflow's definition.

        Raises:
            NotFound: The workflow has no such step.
        """
        self.look.branch(number)
        return Job(records.job_of(self._id, number), self._queues, self._clock)

    def _read(self) -> tuple[bool, str | Failure | None]:
        outcome = self.look.outcome()
        return outcome is not None, outcome

    def _value(self, outcome: str | Failure) -> Any:  # noqa: ANN401
        if isinstance(outcome, Failure):
            why = self._answer(lambda: self.look.why(outcome))
            raise JobFailed(f"The workflow {self.id} has no result. {why}")
        blobs = self._queues.engine.blobs
        whole = whole_given(blobs, f"[{outcome}]".encode())[1:-1]
        return decode_result(whole.decode(), Any)

    def _late(self, _: None) -> TimeoutError:
        progress = self._answer(lambda: self.progress)
        return TimeoutError(
            f"The workflow {self.id} still runs: {progress.left} of {progress.total} steps left."
        )

    def cancel(self, step: int | None = None) -> None:
        """Cancel waiting steps and ask running steps to stop.

        Args:
            step: Only this step and the steps after it; by default all.

        Raises:
            NotFound: The workflow or step does not exist.
        """
        workflow_control.cancel(acting(self._queues), self.look, step)

    def retry(self, step: int | None = None) -> int:
        """Retry dead-letter steps; steps that wait for them then continue.

        Args:
            step: Only this step and the steps after it; by default all.

        Returns:
            The number of retried steps.

        Raises:
            NotFound: The workflow or step does not exist.
        """
        return workflow_control.retry(acting(self._queues), self.look, step).done

    def fork(self, from_step: int, *, part: Part | None = None) -> "Flow":
        """Start a new workflow that reuses the results of what came before a step.

        This step, steps without a result and all steps that need one of these run anew. Results
        are copied; the unique key is not. This workflow is left as it is, and must not run.

        Args:
            from_step: Number of the step, from 0.
            part: The workflow as it was started, for the arguments of steps that have ended: they
                are kept only with `history="arguments"`, up to 16 KiB.

        Returns:
            A handle on the new workflow.

        Raises:
            NotFound: The workflow or step does not exist, or the workflow has expired.
            Conflict: The workflow runs, arguments are not kept, `part` has other steps, or a
                compensation has undone a result.
            BadInput: `from_step` is not a number.
            EnqueueUnknown: The new workflow may or may not be stored; see `start_again`.
        """
        from dueline.admin.reruns import kept_step  # noqa: PLC0415  (used by few)
        from dueline.workflows.forking import replanned  # noqa: PLC0415

        queues, kept = self._queues, kept_step(self._queues.engine)
        if part is not None:
            calls = replanned(self.look.layout, lay_out(part, self.name))
            kept = lambda _job, step, _row: calls[step]  # noqa: E731
        flow = workflow_control.fork(acting(queues), self.look, from_step, kept)
        return Flow(flow, queues, self._clock)

    def signal(self, name: str, value: object = None) -> None:
        """Send a signal to the steps that `wait_for` its name.

        Args:
            name: Name of the signal.
            value: Result of the waiting steps.

        Raises:
            NotFound: No step waits for the signal.
            Conflict: The signal was sent before.
            BadInput: The value cannot be written as JSON.
        """
        flows.signal(
            self._queues.engine, self.look, name, encode_result(value, f"the signal {name}")
        )

    astatus = twin(status)
    aprogress = twin(progress)
    acancel = twin(cancel)
    aretry = twin(retry)
    afork = twin(fork)
    asignal = twin(signal)


def _key_of(unique: Unique | str) -> Rule:
    """Return the unique key of a workflow."""
    if isinstance(unique, str):
        unique = Unique(unique)
    if not isinstance(unique, Unique):
        raise BadInput(
            f"`unique` must be a string or Unique (got {unique!r:.80}).",
            hint='Use unique="import-acme".',
        )
    if unique.mode not in ("reject", "existing"):
        raise BadInput(
            f"A workflow cannot have a unique key of the mode {unique.mode!r}: some of its steps "
            "may have run while others wait.",
            hint='Use "reject" or "existing", and flow.cancel() to make room.',
        )
    unique.check((), "a workflow")
    return unique.rule({})


class WorkflowMethods(Connection):
    """Methods of an application that start and find workflows."""

    def start(
        self,
        part: Part,
        *,
        name: str = "",
        tx: object = None,
        unique: Unique | str | None = None,
    ) -> Flow:
        """Start a workflow: store it durably, with all its steps.

        Args:
            part: A step, or steps combined by `pipeline`, `group`, `chord` or `graph`.
            name: A title for people.
            tx: The transaction that stores the workflow, as in `task.using(tx=...)`; None for one
                of its own.
            unique: Key that only one workflow has at a time, until all its steps have ended; a
                string is `Unique(string)`. The modes are "reject" and "existing".

        Returns:
            A handle on the workflow; its steps run in workers.

        Raises:
            BadInput: The arguments of a step do not fit, or a value is out of range. Nothing was
                stored.
            Duplicate: Another workflow has the unique key. Nothing was stored.
            EnqueueUnknown: The workflow may or may not be stored; see `start_again`.
            StoreUnavailable: Nothing was stored.
        """
        rule = None if unique is None else _key_of(unique)
        laid_out = lay_out(part, name)
        queues = self.queues
        inside = queues
        if tx is not None:
            names = {call.queue for call in laid_out.calls if call is not None}
            inside = self.join(tx, *names).queues_of(self)

        def store(layout: LaidOut) -> Start:
            start = flows.begin(inside.engine, layout, inside.admission.admit, rule)
            placed = dependencies.placed(inside.engine, start.jobs, is_inside=inside.is_inside)
            start = start._replace(jobs=placed)
            try:
                return start._replace(flow=workflow_control.start(inside, start))
            except EnqueueUnknown as error:
                error.start = start
                raise

        start = traced_start(self.hooks.tracer, laid_out, store)
        return Flow(start.flow, queues, self.clock)

    async def astart(
        self,
        part: Part,
        *,
        name: str = "",
        tx: object = None,
        unique: Unique | str | None = None,
    ) -> Flow:
        """Start a workflow like `start`, without blocking the event loop.

        Args:
            part: A step, or steps combined by `pipeline`, `group`, `chord` or `graph`.
            name: A title for people.
            tx: An asynchronous connection or session, as in `task.using(tx=...)`.
            unique: As in `start`.

        Returns:
            A handle on the workflow.

        Raises:
            BadInput: As in `start`.
        """
        from asyncio import to_thread  # noqa: PLC0415  (slow to load)

        if tx is not None:
            return await in_transaction(
                self.join(tx), lambda own: self.start(part, name=name, tx=own, unique=unique)
            )
        return await to_thread(self.start, part, name=name, unique=unique)

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
            flow = workflow_control.start(self.queues, start, again=True)
        except EnqueueUnknown as unknown:
            unknown.start = start
            raise
        return Flow(flow, self.queues, self.clock)

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
