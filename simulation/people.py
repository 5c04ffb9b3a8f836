"""Processes of a run: producers, workers and an operator."""

import random
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple, cast

from dueline.coordination.worker_registry import KnownTasks
from dueline.core.call_options import CallOptions, Mode, Rule
from dueline.core.clock import SECOND_US
from dueline.core.engine import Engine
from dueline.core.errors import BadInput, Conflict, EnqueueUnknown, NotFound, StoreUnavailable
from dueline.core.ids import Ids
from dueline.core.job import Job, JobId
from dueline.core.store import Store
from dueline.core.wakeup import LocalWakeups, NoWakeups, Signal, Wakeups
from dueline.core.worker_needs import Has
from dueline.jobs.history_recorder import open_engine
from dueline.jobs.queue import EnqueueRequest, Queues
from dueline.tasks.handler import Handler
from dueline.tasks.signatures import Signatures
from dueline.worker.backoff import PollTimer
from dueline.worker.execution import Execution
from dueline.worker.settler import Settler
from dueline.worker.thread_runner import ThreadRunner
from dueline.worker.worker import Worker
from dueline.worker.worker_settings import WorkerSettings
from simulation import green
from simulation.clocks import ProcessClock
from simulation.link import Link
from simulation.producing import Left, Producers
from simulation.recorder import RecordingStore
from simulation.scenario import PRIORITIES, QUEUE, TENANTS, Scenario
from simulation.shop import TASKS, RunLog, call_of, eventer, noted
from simulation.world import Process, World

AGAIN_US = 500_000
"""Time until a process retries when it cannot reach the store."""

BETWEEN_US = (100_000, 1_000, 1_000_000, 3_000_000)
AHEAD_US = (0, 0, 0, 500_000, 2_000_000, 6_000_000)
MODES: Sequence[Mode] = ("reject", "existing", "replace", "earliest")

DRIFTS_PPM = (0, 50, -50)
"""StoreTime tolerates 100 ppm; more is a broken clock."""


class SeededIds(Ids):
    """Ids that are the same in every run of a seed."""

    def __init__(self, seed: str) -> None:
        """Take what they are made from; a fork is nothing that happens here."""
        super().__init__(random.Random(seed).randbytes)


class Version(NamedTuple):
    """A version of the application: its handlers, its custom codecs, and what its workers have."""

    handlers: Mapping[str, Handler]
    codecs: tuple[int, ...] = ()
    has: Has = MappingProxyType({})

    @property
    def known(self) -> KnownTasks:
        """The tasks that its workers can run."""
        signatures = Signatures(self.handlers)
        return KnownTasks(tuple(self.handlers), self.codecs, signatures=signatures, has=self.has)


class Town:
    """Starts processes, and holds what they share."""

    def __init__(
        self,
        world: World,
        scenario: Scenario,
        diary: RunLog,
        reach: Callable[[Link], Store],
        *,
        seed: int,
    ) -> None:
        """Take the world, its story, its diary, and how a store is reached by a link."""
        self.world = world
        self.scenario = scenario
        self.known: list[JobId] = []
        self.unanswered: set[JobId] = set()
        """Those whose calls got no answer, and were not repeated."""
        self.workers: list[tuple[Process, Worker]] = []
        self._working: list[Process] = []
        self._persons: list[Process] = []
        self._producers = Producers(world, self._start_producer)
        self._unsure: list[Left[Job]] = []
        self._diary = diary
        self._reach = reach
        self._seed = seed
        self.versions: Sequence[Version] = (Version(TASKS),)
        """Versions of the application, the newest last; workers of all run until the faults end."""
        self.version_of: dict[str, Version] = {}
        """Versions of the workers, by process."""
        self._wakeups: Wakeups = LocalWakeups() if scenario.hears else NoWakeups()
        self._repeats = scenario.is_stepped or scenario.settings.keep_us > 0
        """Where nothing is known of what has ended, nothing is sent again."""
        self._numbers = 0
        self._started = 0
        self._engines: dict[str, Engine] = {}

    # Processes

    def engine_here(self) -> Engine:
        """Return the engine of the process that calls this."""
        return self._engines[self.world.here().name]

    def _process(self, kind: str) -> Process:
        self._started += 1
        process = self.world.process(f"{kind}{self._started}")
        if self.scenario.drifts:
            process.drift_ppm = DRIFTS_PPM[self.world.tape.pick(len(DRIFTS_PPM))]
        return process

    def _queues(self, process: Process) -> Queues:
        world = self.world
        link = Link(world, process, self.scenario.faults)
        store = RecordingStore(
            self._reach(link), self._diary.of(process), eventer(world, process), noted
        )
        engine = open_engine(
            cast("Store", store),
            clock=ProcessClock(world, process),
            ids=SeededIds(f"{self._seed}/{process.name}"),
            defaults=self.scenario.settings,
            wakeups=self._wakeups,
        )
        self._engines[process.name] = engine
        return Queues(engine)

    def _wait(self) -> None:
        self.world.sleep(AGAIN_US)

    # Producers

    def start_producer(self) -> None:
        """Start a producer."""
        self._producers.begin(Left(self.scenario.calls))

    def _start_producer(self, left: Left[Job]) -> Process:
        process = self._process("producer")
        self.world.spawn(process, process.name, self._produce, process, left)
        return process

    def _produce(self, process: Process, left: Left[Job]) -> None:
        tape = self.world.tape
        queues = self._queues(process)
        while left.calls or left.unsure:
            if left.unsure:
                self._repeat(queues, left)
                continue
            left.calls -= 1
            self._call(queues, self._calls(), left)
            self.world.sleep(BETWEEN_US[tape.pick(len(BETWEEN_US))])
        left.is_over = True

    def _calls(self) -> EnqueueRequest:
        tape = self.world.tape
        now_us = self.world.now_us
        count = 1 + (tape.pick(5) if tape.pick(4) == 3 else 0)
        bodies = []
        for _ in range(count):
            self._numbers += 1
            bodies.append(call_of(tape, self._numbers))
        ahead_us = AHEAD_US[tape.pick(len(AHEAD_US))]
        rule = None
        if self.scenario.keys and count == 1 and tape.pick(2):
            key = f"k{tape.pick(self.scenario.keys)}"
            rule = Rule(key, MODES[tape.pick(len(MODES))])
        expires_us = None
        if tape.pick(8) == 7:
            expires_us = now_us + ahead_us + SECOND_US * (1 + tape.pick(5))
        options = CallOptions(expires_us=expires_us, unique=rule)
        return EnqueueRequest(
            QUEUE,
            "work",
            0,
            bodies,
            now_us + ahead_us if ahead_us else None,
            PRIORITIES[tape.pick(len(PRIORITIES))],
            TENANTS[tape.pick(len(TENANTS))],
            options.to_bytes(),
        )

    def _call(self, queues: Queues, calls: EnqueueRequest, left: Left[Job]) -> None:
        """Repeat a call until it is stored or its outcome is unknown."""
        while True:
            try:
                self.known += [job.id for job in queues.enqueue(calls)]
            except EnqueueUnknown as error:
                self.known += [job.id for job in error.jobs]
                if self._repeats:
                    left.unsure += error.jobs
                else:
                    self.unanswered.update(job.id for job in error.jobs)
            except (Conflict, BadInput):  # its key is taken, or it came too late
                pass
            except StoreUnavailable:
                self._wait()
                continue
            return

    def _repeat(self, queues: Queues, left: Left[Job]) -> None:
        """Send jobs with an unknown outcome again until they are stored."""
        try:
            queues.enqueue_again(list(left.unsure))
        except Conflict:  # its key is taken
            del left.unsure[0]
        except StoreUnavailable:
            self._wait()
        else:
            left.unsure.clear()

    # Anybody

    def start_person(self, kind: str, act: Callable[["Town", Queues], object]) -> None:
        """Start a process that runs functions one after the other; the run waits for it."""
        process = self._process(kind)
        self._persons.append(process)

        def lead() -> None:
            act(self, self._queues(process))
            process.is_dead = True

        self.world.spawn(process, process.name, lead)

    def is_calling(self) -> bool:
        """Return whether a process may still make calls."""
        return self._producers.running > 0 or not all(person.is_dead for person in self._persons)

    def put(self, queues: Queues, calls: EnqueueRequest) -> list[JobId]:
        """Repeat a call until its outcome is known."""
        left = Left[Job](0)
        self._unsure.append(left)
        before = len(self.known)
        self._call(queues, calls, left)
        while left.unsure:
            self._repeat(queues, left)
        return self.known[before:]

    def finish_calls(self, queues: Queues) -> None:
        """Repeat the calls whose callers died before their outcome was known."""
        for left in self._unsure:
            while left.unsure:
                self._repeat(queues, left)

    def insist(self, act: Callable[[], object]) -> None:
        """Repeat a function until the store responds."""
        while True:
            try:
                act()
            except (Conflict, NotFound):
                return
            except StoreUnavailable:
                self._wait()
            else:
                return

    # Workers

    def start_worker(self) -> Process:
        """Start a worker."""
        process = self._process("worker")
        newest = len(self.versions) - 1
        pick = self.world.tape.pick(newest + 1) if newest and not self.world.is_healed else newest
        self.version_of[process.name] = self.versions[pick]
        self.world.spawn(process, process.name, self._work, process)
        return process

    def look_after_workers(self) -> None:
        """Replace workers that died, and one live worker by choice."""
        living = [process for process in self._working if not process.is_dead]
        tape, world = self.world.tape, self.world
        missing = self.scenario.workers - len(living)
        wanted = [world.is_healed or tape.pick(4) == 0 for _ in range(missing)]
        living += [self.start_worker() for _ in range(sum(wanted))]
        if self.scenario.is_redeployed and not world.is_healed and tape.is_rare(5):
            for process, worker in self.workers:
                if not process.is_dead:
                    world.tell(process.name, "deploy", "stops it")
                    worker.stop()
                    break
        if world.is_healed and len(self.versions) > 1:
            for process, worker in self.workers:
                if not process.is_dead and self.version_of[process.name] != self.versions[-1]:
                    worker.stop()
        self._working = living
        world.later(SECOND_US, self.look_after_workers)

    def _work(self, process: Process) -> None:
        while True:
            try:
                worker = self._worker(process)
                break
            except StoreUnavailable:
                self._wait()
        self.workers.append((process, worker))
        worker.run()
        process.is_dead = True

    def _worker(self, process: Process) -> Worker:
        world, scenario, version = self.world, self.scenario, self.version_of[process.name]
        queues = self._queues(process)
        clock = ProcessClock(world, process)
        queues.engine.catalog.settings(QUEUE)
        queues.engine.time.latest_us()
        wakeup = cast("Signal", green.Event())
        listener = queues.engine.wakeups.listen([QUEUE, process.name], wakeup)
        chance = random.Random(f"{self._seed}/{process.name}/chance")
        runner = ThreadRunner(
            Execution(version.handlers),
            threads=scenario.slots,
            clock=clock,
            now_us=queues.engine.time.earliest_us,
            wakeup=wakeup,
            processor_us=lambda: 0,  # not that of the machine: a run is repeatable
        )
        return Worker(
            queues.engine,
            runner,
            Settler(queues.engine, version.handlers, chance),
            WorkerSettings(
                worker=process.name,
                serving={QUEUE: None},
                known=version.known,
                settles_beside=not scenario.is_stepped and self._seed & 4 > 0,
            ),
            clock=clock,
            wakeup=wakeup,
            listener=listener,
            pace=PollTimer(listener.gap_us_max, chance.random),
        )

    # The operator

    def start_operator(self) -> Process:
        """Start an operator that cancels, retries and changes jobs."""
        process = self._process("operator")
        self.world.spawn(process, process.name, self._operate, process)
        return process

    def _operate(self, process: Process) -> None:
        tape = self.world.tape
        queues = self._queues(process)
        while not self.world.is_healed:
            self.world.sleep(BETWEEN_US[tape.pick(len(BETWEEN_US))])
            if not self.known:
                continue
            job_id = self.known[tape.pick(len(self.known))]
            act = tape.pick(4)
            try:
                self._act(queues, job_id, act)
            except (Conflict, NotFound, BadInput):
                pass
            except StoreUnavailable:
                self._wait()
        process.is_dead = True

    def _act(self, queues: Queues, job_id: JobId, act: int) -> None:
        tape = self.world.tape
        if act == 0:
            queues.cancel(job_id)
        elif act == 1:
            queues.retry(job_id)
        elif act == 2:
            queues.change(job_id, priority=PRIORITIES[tape.pick(len(PRIORITIES))])
        else:
            ahead_us = AHEAD_US[tape.pick(len(AHEAD_US))]
            queues.reschedule(job_id, self.world.now_us + ahead_us)
