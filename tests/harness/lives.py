"""Whole lives of jobs, stopped at any step.

Workers run the real engine on the memory store without transactions, or on another that a kind
of stage opens. What a stage watches is the cluster itself, before each step of anybody: when an
end was first recorded, and which.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from dueline.coordination.worker_registry import KnownTasks
from dueline.core.attempt import Crashed, Ended, Ending, Outcome, read_epitaph
from dueline.core.clock import DAY_US
from dueline.core.codec import decode
from dueline.core.errors import StoreUnavailable
from dueline.core.ids import Ids
from dueline.core.job import Claim, Job, JobId
from dueline.core.queue_settings import QueueSettings
from dueline.core.retry import Retry
from dueline.core.store import Store
from dueline.core.wakeup import GAP_US_MAX_WITHOUT_WAKEUPS, NoListener
from dueline.core.watermark import StreamShard
from dueline.jobs.completion import stored
from dueline.jobs.history import HISTORY_SUFFIX
from dueline.jobs.history_recorder import open_engine
from dueline.jobs.queue import Queues
from dueline.tasks.handler import Handler
from dueline.tasks.progress import ProgressReport
from dueline.worker.assignment import Assignment
from dueline.worker.backoff import PollTimer
from dueline.worker.chunk_inbox import ChunkInbox
from dueline.worker.execution import Execution
from dueline.worker.runner import LostSlot
from dueline.worker.settler import Settler
from dueline.worker.worker import Worker
from dueline.worker.worker_settings import WorkerSettings
from tests.harness.calls import row_of
from tests.harness.clocks import HandClock
from tests.harness.cluster import Cluster
from tests.harness.interleaving import Turns
from tests.harness.stepped_store import SteppedMemoryStore
from tests.harness.worker_bench import HandNews, Silence

LEASE_US = QueueSettings().lease_us
WIDTH_US = QueueSettings().width_us
AFTER_LEASES_US = 2 * LEASE_US + 1
WORKERS_MAX = 12
KEEPING = QueueSettings(keep_us=30 * DAY_US)

Act = Callable[[int], object]
"""What a handler does, told which call of it this is, the first being 1."""


class Stopped(BaseException):
    """The process ended here."""


class Killed(Exception):
    """Raised by an act: the handler takes its worker with it."""


class ChildDied(Exception):
    """Raised by an act: the handler takes the child process with it that runs it."""


@dataclass
class Stage:
    """A cluster, and what becomes of the jobs in it.

    act: what the handler does. stop_at: numbers of steps before which a client is stopped.
    meanwhile: what happens instead of a stop. calls: handlers called so far. ends: each end
    that was recorded, by job, as first seen. calls_at_end: how many calls there were by then.
    names: what each step is.
    turns: who of two threads takes the next step. failing: how often which steps fail.
    """

    act: Act
    retry: Retry = field(default_factory=Retry)
    settings: QueueSettings = KEEPING
    stop_at: frozenset[int] = frozenset()
    meanwhile: Callable[[], object] | None = None
    cluster: Cluster = field(default_factory=Cluster)
    clock: HandClock = field(default_factory=HandClock)
    steps: int = 0
    calls: int = 0
    clients: int = 0
    turns: Turns | None = None
    failing: dict[str, int] = field(default_factory=dict)
    store_class: type[SteppedMemoryStore] = SteppedMemoryStore
    ends: dict[JobId, Outcome] = field(default_factory=dict)
    calls_at_end: dict[JobId, int] = field(default_factory=dict)
    names: list[str] = field(default_factory=list)
    queue: str = "default"

    @property
    def dead_queue(self) -> str:
        """Name the queue where dead jobs lie."""
        return f"{self.queue}!dead"

    def step(self, name: str) -> None:
        """Wait for the turn, watch, then stop if this is the step to stop at."""
        if self.turns is not None:
            self.turns.step(name)
        self.watch()
        self.names.append(name)
        self.steps += 1
        if self.failing.get(name):
            self.failing[name] -= 1
            raise StoreUnavailable
        if self.steps in self.stop_at:
            if self.meanwhile is None:
                raise Stopped
            self.meanwhile()

    def watch(self) -> None:
        """Note the first record of each end: an outcome, a result, a dead row."""
        for row in self.rows():
            if row.id in self.ends:
                continue
            if row.outcome:
                self._note(row.id, stored(row).finish.outcome)
            elif row.lane.queue == self.dead_queue:
                self._note(row.id, Outcome("dead", row.at_us, error=read_epitaph(row.error)[0]))
        for job_id, outcome in self.results():
            self._note(job_id, outcome)

    def _note(self, job_id: JobId, outcome: Outcome) -> None:
        if job_id not in self.ends:
            self.ends[job_id] = outcome
            self.calls_at_end[job_id] = self.calls

    def rows(self) -> list[Job]:
        """List all rows that are there, stubs aside."""
        return [
            row.job
            for rows in self.cluster.rows.values()
            for row in rows.values()
            if row.stub is None
        ]

    def results(self) -> list[tuple[JobId, Outcome]]:
        """List the results that are kept; they may leave out what was noted."""
        return [
            (job_id, decode(put.value, Outcome))
            for partition, table in self.cluster.records.items()
            if partition.startswith("results/")
            for put in table.values()
            if (job_id := JobId(bytes.fromhex(put.key))) not in self.ends
        ]

    def is_over(self) -> bool:
        """Tell whether nothing but the dead is left, and nothing is on its way."""
        return not any(
            row.stub or lane.queue == self.queue
            for lane, rows in self.cluster.rows.items()
            for row in rows.values()
        )

    # Clients, each with a memory of its own

    def queues(self) -> Queues:
        """Begin a process: a client of the cluster, and the engine on it."""
        self.clients += 1
        store = self.open_store()
        ids = Ids(random.Random(self.clients).randbytes)
        return Queues(open_engine(store, clock=self.clock, ids=ids, defaults=self.settings))

    def open_store(self) -> Store:
        """Make a client of the cluster."""
        return self.store_class(self.clock, cluster=self.cluster, step=self.step)

    def work(self, *tasks: str) -> None:
        """Begin a worker that knows these tasks, and let it work until nothing is due."""
        queues = self.queues()
        runner = self.runner()
        wakeup = HandNews(self.clock)
        wakeup.meanwhile = runner.go_on
        worker = Worker(
            queues.engine,
            runner,
            Settler(queues.engine, runner.handlers, random.Random(1)),
            WorkerSettings(
                f"w{self.clients}",
                {self.queue: None},
                KnownTasks(tasks or ["tests.task"]),
                burst=True,
            ),
            clock=self.clock,
            wakeup=wakeup,
            listener=NoListener(wakeup),
            pace=PollTimer(GAP_US_MAX_WITHOUT_WAKEUPS, lambda: 0.0),
        )
        worker._beat = Silence(lambda: 0, wakeup=wakeup)
        worker.run()

    def runner(self) -> "Runner":
        """Make what calls the handlers of a worker."""
        return Runner(self)

    def work_to_the_end(self) -> None:
        """Begin one worker after the other, each when the last one's leases are over."""
        for _ in range(WORKERS_MAX):
            with suppress(Stopped):
                self.work()
            if self.is_over():
                return
            self.clock.advance(us=AFTER_LEASES_US)
        raise AssertionError("the job never comes to an end")

    def others_go_on(self) -> None:
        """Let all leases end and other workers see the job through, while one is paused."""
        self.clock.advance(us=AFTER_LEASES_US)
        self.work_to_the_end()

    def sweep_to_the_end(self) -> None:
        """Sweep what is left over, days later; who is stopped is followed by another."""
        for _ in range(3 + len(self.stop_at)):
            self.clock.advance(us=DAY_US)
            try:
                self.sweep()
            except Stopped:
                continue

    def sweep(self) -> None:
        """Sweep once."""
        store = self.queues().engine.store
        for queue in (self.queue, self.dead_queue):
            store.sweep(queue, 0, now_us=self.clock.wall_us(), width_us=WIDTH_US)

    # What is there in the end

    def listed(self, queue: str) -> int:
        """Count the pointers of a queue."""
        return sum(
            len(pointers)
            for shard, pointers in self.cluster.pointers.items()
            if shard.queue == queue
        )

    def history(self) -> int:
        """Count the rows in the history of the queue, repeats included."""
        return len(self.cluster.streams.get(StreamShard(self.queue + HISTORY_SUFFIX, 0), {}))

    def first_job(self) -> Job:
        """Make the job whose life is led."""
        return row_of(1)


class Runner:
    """Calls handlers in the worker's own thread: begun in one wait, ended in the next."""

    isolates = False
    threads = 4

    def __init__(self, stage: Stage) -> None:
        """Take the stage, whose act the handler is."""
        self.run_us = 0.0
        self._stage = stage
        self._deaths: list[Exception] = []
        self.handlers = {
            "tests.task": Handler(
                self._handle, name="tests.task", retry=stage.retry, timeout_us=None
            )
        }
        self._execution = Execution(self.handlers)
        self._ready: list[Assignment] = []
        self._active: list[Assignment] = []
        self._ended: list[Ended] = []

    def _handle(self, _number: int) -> object:
        self._stage.calls += 1
        try:
            return self._stage.act(self._stage.calls)
        except (Killed, ChildDied) as how:
            self._deaths.append(how)
            raise

    def go_on(self) -> None:
        """End what runs, or begin what is ready."""
        started_us = self._stage.clock.wall_us()
        for held in self._active:
            self._ended.append(Ended(held.job, self._run(held), started_us, started_us + 1))
        self._active, self._ready = ([], self._ready) if self._active else (self._ready, [])

    def _run(self, assignment: Assignment) -> Ending:
        ending = self._execution.run(assignment, self._stage.clock.wall_us())
        if not self._deaths:
            return ending
        if isinstance(self._deaths.pop(), Killed):
            raise Stopped
        return Crashed("The child died.")

    def start(self) -> None:
        """Nothing to start."""

    def submit(self, assignments: Sequence[Assignment]) -> None:
        """Hold jobs."""
        self._ready += assignments

    def spread(self) -> None:
        """Nothing to wake."""

    def collect(self) -> list[Ended]:
        """Take the attempts that ended."""
        ended, self._ended = self._ended, []
        return ended

    def running(self) -> list[Job]:
        """List the jobs whose handlers run."""
        return [held.job for held in self._active]

    def take_back(self) -> list[Job]:
        """Take back what has not begun."""
        ready, self._ready = self._ready, []
        return [held.job for held in ready]

    def extend(self, until_us: Mapping[Claim, int]) -> None:
        """Hear until when claims last."""

    @property
    def capacity(self) -> int:
        """All threads are there."""
        return self.threads

    def waiting_since_us(self) -> int | None:
        """Say when the oldest came that has not begun."""
        return min((held.since_us for held in self._ready), default=None)

    def take_waiting(self) -> list[Job]:
        """Take back what has not begun."""
        return self.take_back()

    def forget(self, lost: Sequence[Claim]) -> None:
        """Drop what was lost and has not begun."""
        self._ready = [held for held in self._ready if held.job.claim() not in lost]

    def stop_by_force(self, claims: Sequence[Claim]) -> None:
        """Leave that to other tests."""

    def cancel(self, claims: Sequence[Claim]) -> None:
        """Tell handlers that ask."""
        self._execution.controls.cancel(claims)

    @property
    def chunks(self) -> ChunkInbox:
        """Give the partial results."""
        return self._execution.controls.chunks

    def reports(self) -> Mapping[Claim, ProgressReport]:
        """Take what handlers said."""
        return self._execution.controls.take_reports()

    def waiting(self) -> int:
        """Count what has not begun."""
        return len(self._ready)

    def interrupt_overdue(self) -> None:
        """No handler takes too long here."""

    def lost(self) -> list[LostSlot]:
        """No handler outlives its limit here."""
        return []

    def stop_running(self) -> None:
        """Handlers do not listen."""

    def close(self) -> None:
        """Nothing to close."""


def put_one(stage: Stage) -> Job:
    """Enqueue a job, with nothing in the way."""
    job = stage.first_job()
    stage.queues().enqueue_again([job])
    stage.steps = 0
    stage.names.clear()
    return job
