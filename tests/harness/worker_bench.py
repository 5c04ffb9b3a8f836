"""A worker on a bench: time, handlers and waiting are in the test's hands."""

import random
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from dueline.coordination.worker_registry import KnownTasks
from dueline.core.attempt import Cancelled, Done, Ended, Ending
from dueline.core.job import Claim, Job
from dueline.core.retry import Retry
from dueline.core.wakeup import GAP_US_MAX_WITHOUT_WAKEUPS, Signal
from dueline.core.worker_needs import Has
from dueline.jobs.history import attempts
from dueline.jobs.queue import Queues
from dueline.tasks.handler import Handler
from dueline.tasks.progress import ProgressReport
from dueline.worker.assignment import Assignment, overtaking
from dueline.worker.backoff import PollTimer
from dueline.worker.chunk_inbox import ChunkInbox
from dueline.worker.heartbeat import HeartbeatThread
from dueline.worker.runner import LostSlot
from dueline.worker.settler import Settler
from dueline.worker.tally import Tally
from dueline.worker.worker import Worker
from dueline.worker.worker_settings import WorkerSettings
from tests.harness.calls import number_of
from tests.harness.clocks import HandClock

WAITS_MAX = 5_000
DONE = Done(b"1")


def words(queues: Queues, queue: str = "default") -> list[str]:
    """Read what history calls the attempts."""
    return [attempt.outcome for attempt in attempts(queues.engine.store, queue, 1)]


class HandRunner:
    """Runs nothing by itself: a test starts and ends what it holds.

    began: numbers of the jobs, as their handlers were called. beside: what ran when each began.
    """

    def __init__(self, queues: Queues, threads: int, *, isolates: bool) -> None:
        """Take the engine, to look at rows with, and how many handlers may run at once."""
        self.isolates = isolates
        self.threads = threads
        self.run_us = 0.0
        self.ready: list[Assignment] = []
        self.active: list[Job] = []
        self.began: list[int] = []
        self.beside: dict[int, list[int]] = {}
        self.states: dict[int, int] = {}
        self.submitted: list[Assignment] = []
        self.forgotten: list[Claim] = []
        self.cancelled: list[Claim] = []
        self.told: dict[Claim, ProgressReport] = {}
        self.is_closed = False
        self._queues = queues
        self._store = getattr(
            queues.engine.store, "_store", queues.engine.store
        )  # beside calls that fail
        self._ended: list[Ended] = []

    def start(self) -> None:
        """Nothing to start."""

    def submit(self, assignments: Sequence[Assignment]) -> None:
        """Hold jobs, and look at their rows as they are now."""
        for held in assignments:
            row = self._store.find([held.job.id])[0]
            self.states[number_of(held.job)] = -1 if row is None else row.state
        count = overtaking(assignments, self.ready)
        self.ready[:0] = assignments[:count]
        self.ready += assignments[count:]
        self.submitted += assignments

    def spread(self) -> None:
        """Nothing to wake."""

    def begin(self) -> None:
        """Call the handlers of what is ready, as far as there are threads."""
        while self.ready and len(self.active) < self.threads:
            job = self.ready.pop(0).job
            number = number_of(job)
            self.began.append(number)
            self.beside[number] = [number_of(other) for other in self.active]
            for other in self.active:
                self.beside[number_of(other)].append(number)
            self.active.append(job)

    def end(self, ending: Ending = DONE, *, only: int | None = None) -> None:
        """Let the handlers that run return."""
        now_us = self._queues.engine.time.latest_us()
        for job in list(self.active):
            if only is None or number_of(job) == only:
                self.active.remove(job)
                self._ended.append(Ended(job, ending, now_us - 1, now_us))

    def collect(self) -> list[Ended]:
        """Take the attempts that ended."""
        ended, self._ended = self._ended, []
        return ended

    def running(self) -> list[Job]:
        """List the jobs whose handlers run."""
        return list(self.active)

    def take_back(self) -> list[Job]:
        """Take back what has not begun."""
        taken, self.ready = [held.job for held in self.ready], []
        return taken

    def extend(self, until_us: Mapping[Claim, int]) -> None:
        """Hear until when claims last."""

    @property
    def capacity(self) -> int:
        """All threads are there."""
        return self.threads

    def waiting_since_us(self) -> int | None:
        """Say when the oldest came that has not begun."""
        return min((held.since_us for held in self.ready), default=None)

    def take_waiting(self) -> list[Job]:
        """Take back what has not begun."""
        return self.take_back()

    def forget(self, lost: Sequence[Claim]) -> None:
        """Drop what was lost and has not begun."""
        self.forgotten += lost
        self.ready = [held for held in self.ready if held.job.claim() not in lost]

    def stop_by_force(self, claims: Sequence[Claim]) -> None:
        """Leave that to other tests."""

    def cancel(self, claims: Sequence[Claim]) -> None:
        """End what has not begun; remember the rest."""
        self.cancelled += claims
        for held in [held for held in self.ready if held.job.claim() in claims]:
            self.ready.remove(held)
            ended = Ended(held.job, Cancelled("asked"), 0, self._queues.engine.time.latest_us())
            self._ended.append(ended)

    @property
    def chunks(self) -> ChunkInbox:
        """Give the partial results, of which there are none."""
        return ChunkInbox()

    def reports(self) -> Mapping[Claim, ProgressReport]:
        """Take what the test has handlers say."""
        told, self.told = self.told, {}
        return told

    def waiting(self) -> int:
        """Count what has not begun."""
        return len(self.ready)

    def interrupt_overdue(self) -> None:
        """No handler takes too long here."""

    def lost(self) -> list[LostSlot]:
        """No handler outlives its limit here."""
        return []

    def stop_running(self) -> None:
        """Handlers do not listen."""

    def close(self) -> None:
        """Remember it."""
        self.is_closed = True


class HandNews(Signal):
    """Instead of waiting, does what the test says, and lets the time pass."""

    def __init__(self, clock: HandClock) -> None:
        """Take the clock that waiting moves."""
        super().__init__()
        self.waits_s: list[float] = []
        self.meanwhile: Callable[[], object] = lambda: None
        self._clock = clock

    def wait(self, timeout: float | None = None) -> bool:
        """Pass the time at once."""
        assert timeout is not None
        assert len(self.waits_s) < WAITS_MAX, "the worker never comes to an end"
        self.waits_s.append(timeout)
        end_us = self._clock.monotonic_us() + round(timeout * 1e6)
        self.meanwhile()  # may take a part of the time
        if not self.is_set():
            self._clock.advance(us=max(0, end_us - self._clock.monotonic_us()))
        return self.is_set()


class Silence(HeartbeatThread):
    """No beat at all."""

    def start(self) -> None:
        """Start nothing."""

    def stop(self) -> None:
        """Stop nothing."""


class Bench:
    """A worker, and all that it is made of."""

    def __init__(
        self,
        queues: Queues,
        clock: HandClock,
        *,
        threads: int = 2,
        serving: Mapping[str, int | None] | None = None,
        burst: bool = True,
        isolates: bool = False,
        drain_us: int = 25_000_000,
        retry: Retry | None = None,
        gap_us_max: int = GAP_US_MAX_WITHOUT_WAKEUPS,
        batch_handlers: Handler | None = None,
        takes_context: bool = False,
        tasks: Sequence[str] = ("tests.task", "tests.other", "tests.chunked"),
        codecs: Sequence[int] = (),
        settles_beside: bool | None = None,
        prefetch: bool = True,
        has: Has = MappingProxyType({}),
        tally: Tally | None = None,
    ) -> None:
        """Take the engine and what matters of the settings; ends jobs as they begin.

        Args:
            tasks: The tasks that the worker knows.
            codecs: The custom codecs that it knows.
            batch_handlers: The handler of `tests.chunked`, if there is one.
            takes_context: Whether the handler of `tests.task` takes a Context.
            settles_beside: Whether a thread settles.
            prefetch: Whether it claims jobs before they can start.
            has: What it has for jobs with needs.
            tally: Where attempts are counted.
        """
        serving = {"default": None} if serving is None else serving
        for queue in serving:
            queues.engine.catalog.settings(queue)
        self.queues = queues
        self.clock = clock
        self.wakeup = HandNews(clock)
        self.wakeup.meanwhile = self.run_all
        self.runner = HandRunner(queues, threads, isolates=isolates)
        self.handler = Handler(len, name="tests.task", retry=retry or Retry(), timeout_us=None)
        self.handler.takes_context = takes_context
        handlers = {"tests.task": self.handler}
        if batch_handlers is not None:
            handlers[batch_handlers.name] = batch_handlers
        self.worker = Worker(
            queues.engine,
            self.runner,
            Settler(queues.engine, handlers, random.Random(1), tally=tally),
            WorkerSettings(
                worker="bench:1:0",
                serving=serving,
                known=KnownTasks(tasks, codecs, has=has),
                burst=burst,
                drain_us=drain_us,
                settles_beside=settles_beside,
                prefetch=prefetch,
            ),
            clock=clock,
            wakeup=self.wakeup,
            listener=queues.engine.wakeups.listen([*serving, "bench:1:0"], self.wakeup),
            pace=PollTimer(gap_us_max, lambda: 0.0),
        )
        # The beat is a thread in real time: a test that wants one calls `beat`.
        self.beat = self.worker._extend_all
        self.worker._beat = Silence(lambda: 0, wakeup=self.wakeup)
        # So is the timer of jobs claimed early: the loop starts them where there is none.
        self.worker._prefetched.run_timer = lambda: None  # type: ignore[method-assign]

    def run_all(self) -> None:
        """Begin what can be, and end it."""
        self.runner.begin()
        self.runner.end()

    def run(self) -> list[int]:
        """Let the worker work to its end; list the jobs whose handlers were called."""
        self.worker.run()
        assert self.runner.is_closed
        return self.runner.began


def wait_bound(lower: int, higher: int, aging_us: int) -> int:
    """Return how much later jobs of a higher priority may become due and still go first.

    A job of priority `higher` that becomes due this long or more after a job of priority `lower` is
    claimed after it. So an endless load of more urgent jobs that a worker keeps up with delays a
    job by no more than this, besides the jobs that the worker holds already and the 250 ms that a
    lane list may be old. A load that it cannot keep up with delays the job until what became due
    before is done.

    Args:
        lower: Priority of the job that waits.
        higher: Priority of the more urgent jobs.
        aging_us: How long a job waits to gain one step, > 0.
    """
    assert aging_us > 0, "without aging there is no bound"
    return (higher - lower + 1) * aging_us


def settler_of(queues: Queues, retry: Retry | None = None) -> Settler:
    """Make a settler of one task."""
    handlers: Mapping[str, Handler] = {}
    if retry is not None:
        handler = Handler(lambda _: None, name="tests.task", retry=retry, timeout_us=None)
        handlers = {"tests.task": handler}
    return Settler(queues.engine, handlers, random.Random(1))
