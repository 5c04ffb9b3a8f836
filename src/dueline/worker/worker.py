"""The loop that claims, runs and settles."""

import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from dueline.attempt import Crashed, Done, Ended, GivenBack
from dueline.clock import SECOND_US, Clock
from dueline.errors import StoreUnavailable
from dueline.job import Claim, Job, JobId
from dueline.policy import buffer_size
from dueline.progress import Progress
from dueline.queue import Queues
from dueline.recipes.registry import Presence, announce, leave
from dueline.waker import Ear
from dueline.worker.beat import BEATS_A_LEASE, Beat
from dueline.worker.claimer import Claimer, Taken
from dueline.worker.execution import Assignment
from dueline.worker.log import log
from dueline.worker.lookout import Lookout
from dueline.worker.pace import Pace
from dueline.worker.reports import Reports
from dueline.worker.runner import Runner
from dueline.worker.settler import Settler
from dueline.worker.triage import assigned, parted, triage
from dueline.worker.wishes import Wishes

FLUSH_US = 5_000
WATCH_US = 50_000  # running handlers are looked at so often
BACK_OFF_S = (0.1, 2.0)


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """How a worker works.

    worker: its id, `<host>:<pid>:<random>`. serving: queues, each with its slots or None for
    the common ones. burst: end when nothing is due. drain_us: how long running handlers may go
    on after `stop`.
    """

    worker: str
    serving: Mapping[str, int | None]
    tasks: Sequence[str]
    burst: bool = False
    drain_us: int = 25 * SECOND_US


class Worker:
    """Claims jobs of some queues, has them run, and settles them."""

    def __init__(
        self,
        queues: Queues,
        runner: Runner,
        settler: Settler,
        settings: WorkerSettings,
        *,
        clock: Clock,
        news: threading.Event,
        ear: Ear,
        pace: Pace,
    ) -> None:
        """Take the parts. news: the event that the runner sets, the ear, and `stop`."""
        self.name = settings.worker
        self._queues = queues
        self._runner = runner
        self._settler = settler
        self._settings = settings
        self._clock = clock
        self._news = news
        self._claimer = Claimer(queues, list(settings.serving), settings.worker)
        self._wishes = Wishes(queues, settings.worker, clock)
        self._reports = Reports(queues, runner.reports)
        self._arrived: list[Taken] = []
        self._untold: list[Taken] = []
        self._last: dict[JobId, Progress] = {}
        self._lookout = Lookout(self._claimer, ear, pace, time=queues.time, clock=clock)
        self._held: dict[JobId, Job] = {}
        self._flagged: set[Claim] = set()
        self._ended: list[Ended] = []
        self._careful: deque[Job] = deque()
        self._suspects: deque[Job] = deque()
        self._lone: Job | None = None
        self._flushed_us = 0
        self._started_us = queues.time.latest_us()
        self._failures = 0
        self._is_stopping = False
        self._is_hurried = False
        self._beat = Beat(self._extend_all, self._attend, news=news)

    def stop(self, *, hurry: bool = False) -> None:
        """Claim no more; end when the running handlers have, or at once. Any thread may call."""
        self._is_stopping = True
        self._is_hurried = self._is_hurried or hurry
        self._news.set()

    def run(self) -> None:
        """Work until stopped, or in a burst until nothing is due."""
        self._runner.start()
        self._beat.start()
        try:
            self._until(lambda: self._is_stopping or self._is_burst_over())
            self._drain()
        finally:
            self._beat.stop()
            self._runner.close()
            self._lookout.close()
        self._guarded(self._reports.write)
        self._guarded(lambda: leave(self._queues.store, self._settings.worker))

    def _until(self, is_over: Callable[[], bool]) -> None:
        while not is_over():
            self._news.clear()
            if self._guarded(self._step):
                self._wait()

    def _guarded(self, step: Callable[[], None]) -> bool:
        """Do a step; while the store cannot be had, wait a little longer each time instead."""
        try:
            step()
        except StoreUnavailable as error:
            least_s, most_s = BACK_OFF_S
            log.warning("the store cannot be had: %s", error)
            self._clock.sleep(min(most_s, least_s * 2**self._failures))
            self._failures = min(self._failures + 1, 10)
            return False
        self._failures = 0
        return True

    def _step(self) -> None:
        self._beat.check()
        self._obey()
        self._settle()
        if self._untold:
            self._guarded(self._tell)
        if self._is_stopping:
            self._give_back(self._runner.take_back())
        else:
            self._claim()
            self._runner.spread()
        self._runner.interrupt_overdue()

    # Obey, settle

    def _obey(self) -> None:
        """Cancel jobs whose end is wished for: stop their handlers, or never start them."""
        claims = self._wishes.take()
        if not claims:
            return
        gone = set(claims)
        for line in (self._careful, self._suspects):
            for job in [job for job in line if job.claim() in gone]:
                line.remove(job)
                self._ended.append(self._wishes.ended(job))
        self._runner.cancel(claims)

    def _settle(self) -> None:
        self._ended += self._runner.collect()
        now_us = self._clock.monotonic_us()
        starts: list[Job] = []
        if now_us - self._flushed_us > FLUSH_US:
            over = {one.job.id for one in self._ended}
            starts = [
                job
                for job in self._runner.running()
                if job.id not in over and job.claim() not in self._flagged and self._holds(job)
            ]
        if not self._ended and not starts:
            return
        self._flushed_us = now_us
        tried = [one.job.claim() for one in self._ended if not isinstance(one.ending, Done)]
        if tried:  # what they reported is there before anyone runs them again
            self._reports.write(tried)
        lost = self._settler.settle(self._ended, starts, self._wishes)
        self._flagged.update(job.claim() for job in starts)
        self._let_go([one.job for one in self._ended])
        self._ended = []
        self._lose(lost)

    def _holds(self, job: Job) -> bool:
        """Tell whether this very claim is held: after a stall the job may be held by another."""
        held = self._held.get(job.id)
        return held is not None and held.fence == job.fence

    def _let_go(self, jobs: Sequence[Job]) -> None:
        for job in jobs:
            held = self._held.get(job.id)
            if held is not None and held.fence == job.fence:
                self._held.pop(job.id, None)
                self._last.pop(job.id, None)
        if self._flagged:
            self._flagged.difference_update([job.claim() for job in jobs])

    def _lose(self, lost: Sequence[Job]) -> None:
        mine = [job for job in lost if self._holds(job)]
        if mine:
            self._let_go(mine)
            claims = [job.claim() for job in mine]
            self._reports.forget(claims)
            self._runner.forget(claims)

    # Claim

    def _claim(self) -> None:
        if self._arrived:
            self._admit()
        if self._is_alone():
            return
        self._start_careful()
        if self._suspects or self._is_alone():
            return  # nothing is started beside them
        most = self._runner.threads + buffer_size(self._runner.run_us, self._runner.threads)
        room = most - len(self._held)
        if room < max(1, most // 4) and self._runner.waiting():
            return
        looked = self._lookout.look_if_due()
        while room > 0:
            taken = self._claimer.claim(room, self._room_by_queue())
            if taken:
                room -= len(taken)
                self._lookout.found()
                self._take(taken)
            elif looked or not (looked := self._lookout.look_if_called()):
                break
        self._start_careful()

    def _room_by_queue(self) -> dict[str, int]:
        limited = {queue: slots for queue, slots in self._settings.serving.items() if slots}
        if limited:
            for job in list(self._held.values()):  # the beat may lose some meanwhile
                if job.lane.queue in limited:
                    limited[job.lane.queue] -= 1
        return limited

    def _take(self, taken: Sequence[Taken]) -> None:
        sorted_ = triage(taken, self._queues.catalog.settings, self._queues.time.latest_us())
        if sorted_.decided:
            self._guarded(lambda: self._settler.complete(sorted_.decided))
        if sorted_.died:
            self._untold += sorted_.died
            self._guarded(self._tell)
        self._guarded(lambda: self._settler.end(sorted_.over))
        self._arrived += sorted_.fit
        self._held.update((job.id, job) for job, _ in sorted_.fit)
        self._admit()

    def _tell(self) -> None:
        """Write the history of attempts that died; kept until the store takes it."""
        self._settler.tell_died(self._untold)
        self._untold = []

    def _admit(self) -> None:
        """Start what has arrived, once it is asked whether it may; begun anew where that fails."""
        held = self._held
        taken = [one for one in self._arrived if held.get(one.job.id) is one.job]
        refused = self._wishes.refused([job for job, _ in taken])
        if refused:
            gone = {one.job.id for one in refused}
            taken = [one for one in taken if one.job.id not in gone]
        self._last |= self._reports.last(self._settler.taking_context([job for job, _ in taken]))
        plain, careful = parted(taken, self._queues.catalog.settings)
        assignments = self._assignments(plain)
        self._arrived = []
        self._ended += refused
        for job in careful:
            is_suspect = job.alone and not self._runner.isolates
            (self._suspects if is_suspect else self._careful).append(job)
        if plain:
            self._runner.submit(assignments)

    def _assignments(self, jobs: Sequence[Job]) -> list[Assignment]:
        return assigned(jobs, self._queues.catalog.settings, self._last)

    def _start_careful(self) -> None:
        """Start jobs whose last claim died, or that run at most once: each is marked first.

        The mark is durable before the handler is called, so a job that kills its process at
        once is counted the next time, and jobs that were only waiting beside it never are.
        Suspects run alone: in a child of their own where there are children, else in a worker
        that runs nothing else.
        """
        free = self._runner.threads - self._held_by_runner()
        if self._suspects:
            if free == self._runner.threads:
                self._lone = self._start_marked(self._suspects, 1)[0]
        elif free > 0 and self._careful:
            self._start_marked(self._careful, min(free, len(self._careful)))

    def _is_alone(self) -> bool:
        """Tell whether a suspect runs, beside which nothing is started."""
        return self._lone is not None and self._holds(self._lone)

    def _held_by_runner(self) -> int:
        waiting = (*self._careful, *self._suspects)  # the beat may have lost some of them
        return len(self._held) - sum(map(self._holds, waiting))

    def _start_marked(self, source: deque[Job], count: int) -> Sequence[Job]:
        """Start the first jobs of a waiting line; they leave it once they are marked."""
        some = list(islice(source, count))
        jobs = [job for job in some if self._holds(job)]
        assignments = self._assignments(jobs)  # may fail: then they wait in their line
        lost = {job.id for job in self._settler.settle([], jobs)} if jobs else set()
        for _ in some:
            source.popleft()
        self._lose([job for job in jobs if job.id in lost])
        self._flagged.update(job.claim() for job in jobs if job.id not in lost)
        self._runner.submit([one for one in assignments if one.job.id not in lost])
        return some

    # Wait, end

    def _is_burst_over(self) -> bool:
        if not self._settings.burst or self._held or self._arrived:
            return False
        is_passed = self._guarded(self._pass)
        return is_passed and not self._held and not self._claimer.has_due()

    def _pass(self) -> None:
        self._lookout.look()
        self._claim()

    def _wait(self) -> None:
        timeout_us = FLUSH_US if self._runner.waiting() else WATCH_US
        is_full = self._runner.waiting() or len(self._held) >= self._runner.threads
        if not (is_full or self._is_stopping or self._suspects or self._is_alone()):
            timeout_us = self._lookout.wait_us(timeout_us if self._held else None)
        self._news.wait(timeout_us / 1e6)

    def _drain(self) -> None:
        give_up_us = self._clock.monotonic_us() + self._settings.drain_us
        self._is_stopping = True
        log.info("worker %s stops, holding %d jobs", self._settings.worker, len(self._held))
        waiting = [*(job for job, _ in self._arrived), *self._careful, *self._suspects]
        self._give_back([*waiting, *self._runner.take_back()])
        self._arrived.clear()
        self._careful.clear()
        self._suspects.clear()
        self._until(
            lambda: not self._held or self._is_hurried or self._clock.monotonic_us() > give_up_us
        )
        if self._held:
            log.warning("stopped with %d handlers running; their jobs go back", len(self._held))
        self._give_back(list(self._held.values()), called=True)

    def _give_back(self, jobs: Sequence[Job], *, called: bool = False) -> None:
        """Let go of jobs. called: their handlers may run, so a queue may not have them again."""
        now_us = self._queues.time.latest_us()
        settings = self._queues.catalog.settings
        back: list[Ended] = []
        for job in jobs:
            if self._holds(job):
                is_lost = called and settings(job.lane.queue).is_once
                ending = Crashed("The worker stopped first.") if is_lost else GivenBack()
                back.append(Ended(job, ending, 0, now_us))
        if back and self._guarded(lambda: self._lose(self._settler.settle(back, [], self._wishes))):
            self._let_go([one.job for one in back])

    # The beat, in its own thread

    def _attend(self) -> None:
        """Between beats: pass on what handlers report, and look what is wished of them."""
        self._reports.write()
        if self._held and self._wishes.read():
            self._news.set()

    def _extend_all(self) -> int:
        held = list(self._held.values())
        running = {job.claim() for job in self._runner.running()}
        lost = self._settler.extend(held, running) if held else []
        self._lose(lost)
        catalog = self._queues.catalog
        lease_us = min(catalog.settings(queue).lease_us for queue in self._settings.serving)
        now_us = self._queues.time.latest_us()
        presence = Presence(
            worker=self._settings.worker,
            queues=tuple(self._settings.serving),
            tasks=tuple(self._settings.tasks),
            slots=self._runner.threads,
            held=len(held),
            started_us=self._started_us,
            beat_us=now_us,
            clock_skew_us=self._queues.time.skew_us(),
        )
        announce(
            self._queues.store,
            presence,
            version=self._queues.ids.token(),
            beat_every_us=lease_us // BEATS_A_LEASE,
        )
        return lease_us
