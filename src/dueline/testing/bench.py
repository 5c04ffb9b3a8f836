"""An application in memory, driven by a test."""

import asyncio
import inspect
import random
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from dueline.api.application import Dueline
from dueline.api.task import AsyncTask, Task
from dueline.core.attempt import (
    Cancelled,
    Done,
    Each,
    Ended,
    Ending,
    Failed,
    GivenBack,
    Settled,
    Snoozed,
)
from dueline.core.call_options import is_awaited
from dueline.core.clock import StoreTime, duration_us, to_datetime, to_us
from dueline.core.job import Job
from dueline.durable.context import DurableContext
from dueline.durable.rehearsal import Rehearsal
from dueline.jobs import results
from dueline.jobs.queue import EnqueueRequest, Queues
from dueline.limits.lines import Kind
from dueline.limits.needs import ANY, Needs
from dueline.limits.permits import Granted
from dueline.tasks.arguments import Misfit
from dueline.tasks.batch_handler import ARGUMENT, BatchHandler
from dueline.tasks.handler import Context, Handler
from dueline.testing.clock import VirtualClock
from dueline.testing.functions import FunctionsOnBench
from dueline.worker.assignment import Assignment
from dueline.worker.claimer import Claimer
from dueline.worker.execution import Execution
from dueline.worker.progress_reports import ProgressReports
from dueline.worker.settler import Settler
from dueline.worker.workflow_steps import WorkflowSteps

RUNS_MAX = 10_000
"""Maximum number of jobs of a drain; more would not end."""

WORKER = "test"


@dataclass(slots=True)
class Drained:
    """The outcomes of the attempts of a drain; each attempt is counted once.

    Attributes:
        succeeded: Attempts after which the job is done.
        failed: Attempts after which the job is dead.
        retried: Failed attempts after which the job waits for a retry.
        snoozed: Attempts that the handler snoozed.
        cancelled: Attempts that the handler cancelled.
    """

    succeeded: int = 0
    failed: int = 0
    retried: int = 0
    snoozed: int = 0
    cancelled: int = 0


class AppOnBench:
    """An application whose jobs run in the test's thread when the test calls `drain`.

    Attributes:
        app: The application.
        clock: Its clock.
        functions: Its durable functions.
        rehearsal: How they run.
    """

    def __init__(self, app: Dueline, clock: VirtualClock, *, replays: bool = True) -> None:
        self.app = app
        self.clock = clock
        self.functions = FunctionsOnBench(self)
        self.rehearsal = Rehearsal(suspends=replays)
        self._is_draining = False

    # Run

    def drain(self, *, raises: bool = True) -> Drained:
        """Run due jobs, and the jobs that they enqueue, until none is due.

        Jobs are claimed, run and settled one by one by the code that workers use, the most urgent
        first. The clock does not move: jobs that are retried or due later need `clock.advance`
        and another drain.

        Args:
            raises: Raise the exception of a handler after its job is settled; False to count it.

        Returns:
            The outcomes of the attempts.

        Raises:
            AssertionError: The jobs enqueue others without end.
        """
        counts = Drained()
        if self._is_draining:  # called from a handler of the running drain
            return counts
        self._is_draining = True
        engine = _Engine(self.app, self.rehearsal)
        try:
            for _ in range(RUNS_MAX):
                if not engine.step(counts, raises=raises) and not self._deliver():
                    return counts
        finally:
            self._is_draining = False
            engine.give_back()
        raise AssertionError(f"More than {RUNS_MAX} jobs ran: the jobs enqueue others without end.")

    def _deliver(self) -> int:
        """Move events of topics to the tasks that subscribe; return whether there were some."""
        from dueline.api.deliveries import deliver_all  # noqa: PLC0415  (its modules are many)

        return deliver_all(self.app)

    # Look

    def enqueued(self) -> list[Job]:
        """Return the rows of waiting jobs, in the order of enqueueing."""
        queues = self.app.queues
        rows = [
            row for name in queues.engine.catalog.names() for row in queues.engine.jobs_of(name)
        ]
        return sorted((row for row in rows if not row.outcome), key=lambda row: row.id)

    def assert_enqueued(
        self,
        task: "Task[..., Any] | AsyncTask[..., Any]",
        /,
        *args: object,
        after: timedelta | float | None = None,
        due: datetime | None = None,
        priority: int | None = None,
        queue: str | None = None,
        **kwargs: object,
    ) -> None:
        """Assert that a call of a task is enqueued.

        Args:
            task: The task.
            *args: Positional arguments of the call; without any arguments, all calls match.
            after: Duration between the call and the due time; by default any.
            due: Due time; by default any.
            priority: Priority; by default any.
            queue: Queue; by default any.
            **kwargs: Named arguments of the call.

        Raises:
            AssertionError: No such call is enqueued; the message lists the enqueued jobs.
        """
        if not self._matching(
            task, args, kwargs, after=after, due=due, priority=priority, queue=queue
        ):
            wanted = _call_text(task.name, args, kwargs)
            raise AssertionError(f"Not enqueued: {wanted}{self._what_is()}")

    def assert_not_enqueued(
        self,
        task: "Task[..., Any] | AsyncTask[..., Any]",
        /,
        *args: object,
        after: timedelta | float | None = None,
        due: datetime | None = None,
        priority: int | None = None,
        queue: str | None = None,
        **kwargs: object,
    ) -> None:
        """Assert that no such call of a task is enqueued; see `assert_enqueued`."""
        if self._matching(task, args, kwargs, after=after, due=due, priority=priority, queue=queue):
            unwanted = _call_text(task.name, args, kwargs)
            raise AssertionError(f"Enqueued: {unwanted}{self._what_is()}")

    def _matching(
        self,
        task: "Task[..., Any] | AsyncTask[..., Any]",
        args: Sequence[object],
        kwargs: dict[str, object],
        *,
        after: timedelta | float | None,
        due: datetime | None,
        priority: int | None,
        queue: str | None,
    ) -> list[Job]:
        handler = task.handler
        wanted = None
        if args or kwargs:
            wanted = _bound(handler, *handler.write(args, kwargs))
        return [
            row
            for row in self.enqueued()
            if row.task == task.name
            and (wanted is None or _bound(handler, row.codec, row.body) == wanted)
            and (after is None or row.due_us - row.enqueued_us == duration_us(after))
            and (due is None or row.due_us == to_us(due))
            and priority in (None, row.lane.priority)
            and queue in (None, row.lane.queue)
        ]

    def _what_is(self) -> str:
        lines = [self._describe(row) for row in self.enqueued()]
        return "\nEnqueued jobs:" + "".join(f"\n  {line}" for line in lines or ["nothing"])

    def _describe(self, row: Job) -> str:
        handler = self.app.tasks.get(row.task)
        text = f"{row.task}{row.body.decode(errors='replace')}"
        if handler is not None:
            text = _call_text(row.task, *handler.read(row.codec, row.body))
        wait = to_datetime(row.at_us) - self.clock.now
        due = f"due in {wait}" if wait > timedelta(0) else "due"
        return f"{text} queue={row.lane.queue} priority={row.lane.priority} {due}"


class _Engine:
    """The parts of a worker, driven step by step."""

    def __init__(self, app: Dueline, rehearsal: Rehearsal | None = None) -> None:
        self._app = app
        self._queues = app.queues
        self._execution = _Execution(app.tasks, app.hooks)
        self._execution.rehearsal = rehearsal
        self._reports = ProgressReports(app.queues.engine, self._execution.controls.take_reports)
        self._settler = Settler(app.queues.engine, app.tasks, random.Random(0), app.hooks)
        self._steps = WorkflowSteps(app.queues.engine, self._settler)
        self._gathered: dict[tuple[str, str, str], list[Assignment]] = {}

    def step(self, counts: Drained, *, raises: bool) -> bool:
        """Run the most urgent due job; return whether there was one.

        Jobs of batch tasks wait until a batch is full, or nothing else is due.
        """
        names = self._queues.engine.catalog.names()
        claimer = Claimer(
            self._queues.engine, names, WORKER, permits=_Unlimited(self._queues.engine.time)
        )
        claimer.refresh()
        taken = claimer.claim(1, {})
        if not taken:
            return self._run_gathered(counts, raises=raises)
        sorted_ = self._settler.sort(taken)
        self._settler.complete(sorted_.decided)
        self._settler.record_crashes(sorted_.died)
        self._settler.end(sorted_.over)
        self._steps.ended(sorted_.gone)
        steps = self._steps.sort(sorted_.fit)
        for claimed in steps.fit:
            self._admit(claimed.job, counts, steps.given.get(claimed.job.id, b""), raises=raises)
        self._steps.park_and_end(steps)
        return True

    def _admit(self, job: Job, counts: Drained, given: bytes, *, raises: bool) -> None:
        """Run a job, or add it to its batch."""
        settings = self._queues.engine.catalog.settings(job.lane.queue)
        keep = results.kept_us(job, settings.keep_us) > 0 or is_awaited(job)
        last = self._reports.last([job])[0].get(job.id)
        assignment = Assignment(job, keep, last=last, given=given)
        handler = self._app.tasks.get(job.task)
        key = handler.key_of(assignment) if isinstance(handler, BatchHandler) else None
        if not isinstance(handler, BatchHandler) or key is None:
            self._run([assignment], counts, raises=raises)
            return
        kind = (job.task, job.lane.queue, key)
        line = self._gathered.setdefault(kind, [])
        line.append(assignment)
        if len(line) >= handler.batch.size:
            self._run(self._gathered.pop(kind), counts, raises=raises)

    def _run_gathered(self, counts: Drained, *, raises: bool) -> bool:
        """Run the batch that has waited longest; return whether there was one."""
        for kind in self._gathered:
            self._run(self._gathered.pop(kind), counts, raises=raises)
            self._steps.advance()
            return True
        return False

    def give_back(self) -> None:
        """Release jobs of batches that did not run."""
        now_us = self._queues.engine.time.latest_us()
        left = [gathered for line in self._gathered.values() for gathered in line]
        self._gathered.clear()
        if left:
            self._settler.settle(
                [Ended(assignment.job, GivenBack(), 0, now_us) for assignment in left], []
            )

    def _run(self, batch: list[Assignment], counts: Drained, *, raises: bool) -> None:
        """Run a job or a batch."""
        queues, first = self._queues, batch[0]
        started_us = queues.engine.time.latest_us()
        self._execution.error = None
        ending = self._call(first if len(batch) == 1 else first._replace(chunk=batch), started_us)
        self._reports.write()
        each = dict(ending.endings) if isinstance(ending, Each) else {first.job.claim(): ending}
        ended_us = queues.engine.time.latest_us()
        ended = [
            Ended(assignment.job, each[assignment.job.claim()], started_us, ended_us)
            for assignment in batch
        ]
        self._steps.settled(ended, self._settler.settle(ended, []))
        for attempt in ended:
            self._count(attempt.job, attempt.ending, counts)
        if raises and isinstance(ending, GivenBack):
            self._app.task_named(first.job.task)  # raises NotFound
            if ending.misfit:
                raise Misfit(ending.misfit)
        failed = any(isinstance(attempt.ending, Failed) for attempt in ended)
        if raises and failed and self._execution.error is not None:
            raise self._execution.error

    def _call(self, assignment: Assignment, started_us: int) -> Ending:
        if self._execution.is_async(assignment) and _is_on_loop():
            with ThreadPoolExecutor(1) as beside:  # the loop of this thread is running
                return beside.submit(self._execution.run, assignment, started_us).result()
        return self._execution.run(assignment, started_us)

    def _count(self, job: Job, ending: Ending, counts: Drained) -> None:
        match ending:
            case Done() | Settled():
                counts.succeeded += 1
            case Snoozed():
                counts.snoozed += 1
            case Cancelled():
                counts.cancelled += 1
            case Failed() if self._queues.find(job.id).status == "dead":
                counts.failed += 1
            case Failed():
                counts.retried += 1


class _Unlimited:
    """Unlimited permits: one job runs at a time, and no test waits for a rate."""

    def __init__(self, time: StoreTime) -> None:
        self._time = time

    def take(
        self,
        _limits: Sequence[str],
        count: int,
        *,
        priority: int,
        queue: str,
        lease_us: int,
        needs: Needs = ANY,
    ) -> Granted:
        del priority, queue, needs
        return Granted(count, self._time.latest_us() + lease_us, {})

    def unused(self, limits: Sequence[str], count: int, units: Mapping[str, int] = {}) -> None:
        """Ignore unused permits."""

    def used(self, limits: Sequence[str], jobs: Sequence[Job]) -> None:
        """Ignore used permits."""

    def is_open(self, _name: str) -> bool:
        return True

    def is_first_in_line(self, _name: str, _line: object) -> bool:
        return False

    def lines(self) -> set[Kind]:
        return set()

    def leave_line(self, _line: Kind) -> None:
        """Ignore lines: none waits."""


class _Execution(Execution):
    """Keeps the first exception of a handler that failed a job; rehearses durable functions."""

    error: BaseException | None = None
    rehearsal: Rehearsal | None = None

    def _context(self, assignment: Assignment, handler: Handler, at_us: int) -> Context | None:
        context = super()._context(assignment, handler, at_us)
        if isinstance(context, DurableContext) and self.rehearsal is not None:
            context.rehearse(self.rehearsal)
        return context

    def ending_of(self, error: BaseException, handler: Handler, job: Job) -> Ending:
        ending = super().ending_of(error, handler, job)
        if isinstance(ending, Failed):
            self.error = self.error or error
        return ending


class _InlineQueues(Queues):
    """Runs due jobs as soon as they are enqueued."""

    def __init__(self, queues: Queues, bench: AppOnBench) -> None:
        self.__dict__.update(queues.__dict__)
        self._bench = bench
        self._original = self  # a copy is the view inside a transaction, where nothing runs

    def enqueue(self, calls: EnqueueRequest) -> Sequence[Job]:
        rows = super().enqueue(calls)
        if self is self._original:
            self._bench.drain()
        return rows


@contextmanager
def on_bench(
    app: Dueline,
    *,
    clock: VirtualClock | None = None,
    inline: bool = False,
    replays: bool = True,
) -> Iterator[AppOnBench]:
    """Switch an application to an empty memory store and a test clock while the block runs.

    Args:
        app: The application.
        clock: The clock; by default a new one.
        inline: Run due jobs as soon as they are enqueued, and raise their exceptions there. Their
            arguments are still encoded and decoded.
        replays: Suspend durable functions at every call, and replay them up to there.

    Yields:
        The application under test.
    """
    clock = clock or VirtualClock()
    with app.switched("memory://", clock=clock):
        bench = AppOnBench(app, clock, replays=replays)
        if inline:
            vars(app)["queues"] = _InlineQueues(app.queues, bench)
        yield bench


def _is_on_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _bound(handler: Handler, codec: int, body: bytes) -> Mapping[str, object]:
    """Return the arguments of a call by parameter name, with defaults."""
    args, kwargs = handler.read(codec, body)
    if isinstance(handler, BatchHandler):
        return {ARGUMENT: handler.value_of(codec, body)}
    context = (None,) if handler.takes_context else ()
    bound = inspect.signature(handler.function).bind(*context, *args, **kwargs)
    bound.apply_defaults()
    return bound.arguments


def _call_text(task: str, args: Sequence[object], kwargs: Mapping[str, object]) -> str:
    parts = [*map(repr, args), *(f"{name}={value!r}" for name, value in kwargs.items())]
    return f"{task}({', '.join(parts)})"
