"""An application on a test's bench."""

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
from dueline.core.call_options import is_step
from dueline.core.clock import StoreTime, duration_us, to_datetime, to_us
from dueline.core.job import Claim, Job
from dueline.jobs.queue import EnqueueRequest, Queues
from dueline.limits.permits import Granted
from dueline.tasks.batch_handler import ARGUMENT, BatchHandler
from dueline.tasks.handler import Handler
from dueline.testing.clock import VirtualClock
from dueline.worker.assignment import Assignment
from dueline.worker.claimer import Claimer
from dueline.worker.execution import Execution
from dueline.worker.progress_reports import ProgressReports
from dueline.worker.settler import Settler
from dueline.worker.triage import triage
from dueline.worker.workflow_steps import WorkflowSteps

RUNS_MAX = 10_000
"""A drain that runs more jobs than this would go on for ever."""

WORKER = "test"


@dataclass(slots=True)
class Drained:
    """What became of the attempts of a drain: each is counted once.

    succeeded: the job is done. failed: it is dead. retried: it failed, and waits to be tried
    again. snoozed, cancelled: the handler said so.
    """

    succeeded: int = 0
    failed: int = 0
    retried: int = 0
    snoozed: int = 0
    cancelled: int = 0


class AppOnBench:
    """An application whose jobs run when the test says so, in the test's thread.

    app: the application itself. clock: its time.
    """

    def __init__(self, app: Dueline, clock: VirtualClock) -> None:
        self.app = app
        self.clock = clock
        self._is_draining = False

    # Run

    def drain(self, *, raises: bool = True) -> Drained:
        """Run the jobs that are due, and those that they enqueue, until none is.

        They are claimed, run and settled by the engine that workers run, the most urgent
        first, one after the other. Time stands still meanwhile: a job that is retried or due
        later waits for `clock.advance` and another drain.

        Args: raises: raise what a handler raised, once its job is settled; False to count it.

        Raises: AssertionError: the jobs enqueue others without end.
        """
        counts = Drained()
        if self._is_draining:  # called from a handler: the drain that runs it goes on
            return counts
        self._is_draining = True
        engine = _Engine(self.app)
        try:
            for _ in range(RUNS_MAX):
                if not engine.step(counts, raises=raises):
                    return counts
        finally:
            self._is_draining = False
            engine.give_back()
        raise AssertionError(f"{RUNS_MAX} jobs were run, and there is no end to them.")

    # Look

    def enqueued(self) -> list[Job]:
        """List the rows of jobs that wait, in the order of enqueueing."""
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
        """Make sure that a call of a task waits.

        Args:
          args, kwargs: the call's arguments, however they were written; any where none are given.
          after, due, priority, queue: as in `using`; any where they are left out.

        Raises: AssertionError: none does; it lists what is enqueued.
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
        """Make sure that no such call of a task waits; see `assert_enqueued`."""
        if self._matching(task, args, kwargs, after=after, due=due, priority=priority, queue=queue):
            unwanted = _call_text(task.name, args, kwargs)
            raise AssertionError(f"Enqueued all the same: {unwanted}{self._what_is()}")

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
        return "\nEnqueued is:" + "".join(f"\n  {line}" for line in lines or ["nothing"])

    def _describe(self, row: Job) -> str:
        handler = self.app.tasks.get(row.task)
        text = f"{row.task}{row.body.decode(errors='replace')}"
        if handler is not None:
            text = _call_text(row.task, *handler.read(row.codec, row.body))
        wait = to_datetime(row.at_us) - self.clock.now
        due = f"due in {wait}" if wait > timedelta(0) else "due"
        return f"{text} queue={row.lane.queue} priority={row.lane.priority} {due}"


class _Engine:
    """The parts of a worker, driven by hand."""

    def __init__(self, app: Dueline) -> None:
        self._app = app
        self._queues = app.queues
        self._execution = _Execution(app.tasks, app.hooks)
        self._reports = ProgressReports(app.queues.engine, self._execution.controls.take_reports)
        self._settler = Settler(app.queues.engine, app.tasks, random.Random(0), app.hooks)
        self._steps = WorkflowSteps(app.queues.engine, self._settler)
        self._gathered: dict[tuple[str, str, str], list[Assignment]] = {}

    def step(self, counts: Drained, *, raises: bool) -> bool:
        """Run the most urgent job that is due; tell whether there was one.

        Those of tasks with chunks wait until one is full, or nothing else is due.
        """
        names = self._queues.engine.catalog.names()
        claimer = Claimer(
            self._queues.engine, names, WORKER, permits=_Unlimited(self._queues.engine.time)
        )
        claimer.refresh()
        taken = claimer.claim(1, {})
        if not taken:
            return self._run_gathered(counts, raises=raises)
        now_us = self._queues.engine.time.latest_us()
        found = triage(taken, self._queues.engine.catalog.settings, now_us)
        self._settler.complete(found.decided)
        self._settler.record_crashes(found.died)
        self._settler.end(found.over)
        self._steps.ended(found.gone)
        steps = self._steps.sort(found.fit)
        for one in steps.fit:
            self._admit(one.job, counts, steps.given.get(one.job.id, b""), raises=raises)
        self._steps.park_and_end(steps)
        return True

    def _admit(self, job: Job, counts: Drained, given: bytes, *, raises: bool) -> None:
        """Run a job, or let it wait for others of its chunk."""
        keep = self._queues.engine.catalog.settings(job.lane.queue).keep_us > 0 or is_step(job)
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
        if len(line) >= handler.chunk.size:
            self._run(self._gathered.pop(kind), counts, raises=raises)

    def _run_gathered(self, counts: Drained, *, raises: bool) -> bool:
        """Run the chunk that has waited longest; tell whether there was one."""
        for kind in self._gathered:
            self._run(self._gathered.pop(kind), counts, raises=raises)
            self._steps.advance()
            return True
        return False

    def give_back(self) -> None:
        """Let go of jobs that were gathered and not run."""
        now_us = self._queues.engine.time.latest_us()
        left = [one for line in self._gathered.values() for one in line]
        self._gathered.clear()
        if left:
            self._settler.settle([Ended(one.job, GivenBack(), 0, now_us) for one in left], [])

    def _run(self, some: list[Assignment], counts: Drained, *, raises: bool) -> None:
        """Run a job, or the jobs of a chunk."""
        queues, first = self._queues, some[0]
        started_us = queues.engine.time.latest_us()
        self._execution.error = None
        ending = self._call(first if len(some) == 1 else first._replace(chunk=some), started_us)
        self._reports.write()
        each = dict(ending.endings) if isinstance(ending, Each) else {first.job.claim(): ending}
        ended_us = queues.engine.time.latest_us()
        ended = [Ended(one.job, each[one.job.claim()], started_us, ended_us) for one in some]
        self._steps.settled(ended, self._settler.settle(ended, []))
        for one in ended:
            self._count(one.job, one.ending, counts)
        if raises and isinstance(ending, GivenBack):
            self._app.task_named(first.job.task)  # raises: it is not known
        failed = any(isinstance(one.ending, Failed) for one in ended)
        if raises and failed and self._execution.error is not None:
            raise self._execution.error

    def _call(self, assignment: Assignment, started_us: int) -> Ending:
        if self._execution.is_async(assignment) and _is_on_loop():
            with ThreadPoolExecutor(1) as beside:  # this thread's loop is taken
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
    """Permits for all there is: one job runs at a time, and no test waits for a rate."""

    def __init__(self, time: StoreTime) -> None:
        self._time = time

    def take(
        self, _limits: Sequence[str], count: int, *, priority: int, queue: str, lease_us: int
    ) -> Granted:
        del priority, queue
        return Granted(count, self._time.latest_us() + lease_us, {})

    def unused(self, limits: Sequence[str], count: int) -> None:
        """Need nothing back."""

    def used(self, limits: Sequence[str], claims: Sequence[Claim]) -> None:
        """Note nothing."""

    def is_open(self, _name: str) -> bool:
        return True


class _Execution(Execution):
    """Remembers what a handler raised first that made a job fail."""

    error: BaseException | None = None

    def ending_of(self, error: BaseException, handler: Handler, job: Job) -> Ending:
        ending = super().ending_of(error, handler, job)
        if isinstance(ending, Failed):
            self.error = self.error or error
        return ending


class _InlineQueues(Queues):
    """Runs what is due as soon as it is enqueued."""

    def __init__(self, queues: Queues, bench: AppOnBench) -> None:
        self.__dict__.update(queues.__dict__)
        self._bench = bench
        self._original = self  # a copy is the view from inside a transaction: nothing runs there

    def enqueue(self, calls: EnqueueRequest) -> Sequence[Job]:
        rows = super().enqueue(calls)
        if self is self._original:
            self._bench.drain()
        return rows


@contextmanager
def on_bench(
    app: Dueline, *, clock: VirtualClock | None = None, inline: bool = False
) -> Iterator[AppOnBench]:
    """Switch an application to an empty memory store and a clock of the test's, for a while.

    Args: inline: jobs that are due run as soon as they are enqueued, and raise there; their
      arguments go through the store all the same.
    """
    clock = clock or VirtualClock()
    with app.switched("memory://", clock=clock):
        bench = AppOnBench(app, clock)
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
    """Read a call's arguments by the names of the parameters, defaults filled in."""
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
